/** State of all links, refreshed with one request for each kind of data. */

import { UNCHANGED } from "./api.js";
import { attentionOf } from "./attention.js";

const MOST = 1000; // links in an answer
const HEALTH_MOST = 500;
const LINKS_SECONDS = 60;
const FIGURES_SECONDS = 1.5; // accuracy and health take the service longer than forecasts
const FIGURES_PACE = 8; // and are asked for again after so many times as long as they took

/**
 * @typedef {{
 *   id: string, link: any, status: string | null, forecast: any, accuracy: any, health: any, change: number | null,
 *   attention: {kind: string, reason: string}[]
 * }} Row
 */

/** Emits `change` when the state changed. */
export class City extends EventTarget {
  /** @param {import("./api.js").Api} api */
  constructor(api) {
    super();
    this.api = api;
    this.horizon = 1;
    /** @type {Map<string, any>} */ this.links = new Map();
    /** @type {Map<string, any>} */ this.forecasts = new Map();
    /** @type {Map<string, any>} */ this.figures = new Map();
    /** @type {Map<string, any>} */ this.health = new Map();
    /** @type {Map<string, number>} */ this.changes = new Map();
    this.accuracy = null;
    this.staleAfterMinutes = null;
    this.loaded = false;
    this.linksDue = this.figuresDue = 0;
    this.owesFigures = false; // forecasts are newer than accuracy and health
    /** @type {Row[]} */ this.rows = [];
    /** @type {Map<string, Row>} */ this.byId = new Map();
    this.under = null;
  }

  /** Refresh; calls made meanwhile wait for the same answer. */
  refresh() {
    this.under ??= this.#refresh().finally(() => {
      this.under = null;
    });
    return this.under;
  }

  /** @param {number} horizon slots ahead */
  async look(horizon) {
    if (horizon === this.horizon) return;
    this.horizon = horizon;
    await this.under?.catch(() => {});
    this.api.tags.delete(this.#path());
    this.figuresDue = 0;
    await this.refresh();
  }

  /** @param {string} id @returns {Row | undefined} */
  row(id) {
    return this.byId.get(id);
  }

  zoneOf(id) {
    return this.links.get(id)?.zone ?? "UTC";
  }

  /** Return whether forecasts, health or accuracy were read; until then nothing is known of what they show. */
  knows(part) {
    return { forecasts: this.loaded, health: this.staleAfterMinutes !== null, accuracy: this.accuracy !== null }[part];
  }

  /** Return the time zone of most links. */
  get zone() {
    const zones = new Map();
    for (const link of this.links.values()) zones.set(link.zone, (zones.get(link.zone) ?? 0) + 1);
    return [...zones].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "UTC";
  }

  #path() {
    return `v1/forecasts?horizon=${this.horizon}`;
  }

  async #refresh() {
    const horizon = this.horizon;
    const asked = [this.api.getIfChanged(this.#path())];
    if (Date.now() >= this.linksDue) asked.push(this.#readLinks());
    const [forecasts] = await Promise.all(asked);
    if (forecasts !== UNCHANGED) {
      this.owesFigures = true;
      this.forecasts = new Map(
        forecasts.links.map((one) => [one.link_id, { status: one.status, forecast: one.forecasts[horizon - 1] }]),
      );
    }
    if ([...this.forecasts.keys()].some((id) => !this.links.has(id))) await this.#readLinks();
    this.loaded = true;
    this.#update();
    if (Date.now() >= this.figuresDue) await this.#readFigures(horizon);
  }

  async #readLinks() {
    const page = await this.api.getPages(`v1/links?limit=${MOST}`, "links");
    this.links = new Map(page.links.map((link) => [link.link_id, link]));
    this.linksDue = Date.now() + LINKS_SECONDS * 1000;
  }

  async #readFigures(horizon) {
    const began = Date.now();
    this.owesFigures = false;
    await Promise.all([
      this.api.getPages(`v1/accuracy?window=24h&horizon=${horizon}&limit=${MOST}`, "links").then((answer) => {
        this.accuracy = answer;
        this.figures = new Map(answer.links.map((one) => [one.link_id, one]));
      }),
      this.api.getPages(`v1/health?limit=${HEALTH_MOST}`, "links").then((answer) => {
        this.staleAfterMinutes = answer.stale_after_minutes;
        this.health = new Map(answer.links.map((one) => [one.link_id, one]));
      }),
    ]);
    this.figuresDue = Date.now() + Math.max(FIGURES_SECONDS * 1000, FIGURES_PACE * (Date.now() - began));
    this.#update();
  }

  #update() {
    this.rows = [...this.links.values()].map((link) => this.#row(link));
    this.byId = new Map(this.rows.map((row) => [row.id, row]));
    this.dispatchEvent(new Event("change"));
  }

  /** @returns {Row} */
  #row(link) {
    const id = link.link_id;
    const { status = null, forecast = null } = this.forecasts.get(id) ?? {};
    const health = this.health.get(id) ?? null;
    const now = health?.newest_count;
    // The two may be of different moments when counts come fast; then the last change that was known stays.
    const isNow = forecast && health && now !== null && health.newest_slot === forecast.as_of_slot;
    const change = isNow ? forecast.expected_count - now : (this.changes.get(id) ?? null);
    if (isNow) this.changes.set(id, change);
    const row = { id, link, status, forecast, accuracy: this.figures.get(id) ?? null, health, change, attention: [] };
    row.attention = attentionOf(row);
    return row;
  }
}
