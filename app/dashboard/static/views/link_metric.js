/** Weights of the lags, or of the parts of the context, in the learnt metric of a link's model. */

import { BarChart } from "../charts/bars.js";
import { RowChart } from "../charts/rows.js";
import { partName } from "../context_parts.js";
import { el, put } from "../dom.js";
import { asTable, panel } from "../figure.js";
import { many, percent } from "../formats.js";
import { empty } from "../states.js";

export class LinkMetric {
  /** @param {import("../api.js").Api} api @param {string} id */
  constructor(api, id) {
    this.api = api;
    this.id = id;
    this.shown = null;
    this.lags = [];
    this.columns = []; // of the context
    this.slotMinutes = 15;
    this.bars = new BarChart();
    this.rows = new RowChart();
    this.note = el("span", {});
    this.place = el("div");
    const table = () =>
      this.columns.length
        ? {
            name: `${id} metric`,
            columns: ["part", "column", "weight"],
            rows: this.columns.map((one) => [one.part, one.column, one.weight]),
          }
        : {
            name: `${id} metric`,
            columns: ["lag", "minutes_back", "weight"],
            rows: this.lags.map((one) => [one.lag, one.lag * this.slotMinutes, one.weight]),
          };
    this.written = asTable(table);
    this.element = panel({ title: "Weights of the learnt metric", note: this.note, table }, this.place);
  }

  /** @param {any} answer @param {any} link @param {any} model in the registry, or null */
  async show({ explanation }, link, model) {
    const version = explanation && model ? `version ${model.version}` : null;
    if (version && version === this.shown) return; // a version does not change, and its table keeps the focus
    this.shown = null;
    const detail = explanation ? await this.#detail(model?.version) : null;
    this.slotMinutes = link.slot_minutes;
    this.lags = [...(detail?.lag_weights ?? explanation?.lags ?? [])].sort((a, b) => a.lag - b.lag);
    this.columns = detail?.context_weights ?? [];
    if (!explanation) {
      this.note.textContent = "";
      put(this.place, empty("No metric", "Only a trained model has one."));
      return;
    }
    const rank = explanation.rank ?? model?.rank;
    this.note.textContent = [
      rank && `rank ${rank}`,
      this.columns.length ? many(this.columns.length, "column") : this.lags.length && many(this.lags.length, "lag"),
      model && `${model.algorithm} version ${model.version}`,
    ]
      .filter(Boolean)
      .join(", ");
    const drawn = this.columns.length ? this.#ofContext() : this.lags.length ? this.#ofLags(link) : null;
    if (!drawn) {
      put(this.place, empty("No weights", "This model has none."));
      return;
    }
    put(
      this.place,
      ...drawn,
      detail?.chosen && el("p", { class: "note" }, `Chosen: ${detail.chosen}.`),
      this.written.element,
    );
    this.written.refresh();
    if (detail) this.shown = version;
  }

  /** Return the registry's description of a version; null while it cannot be read. */
  async #detail(version) {
    if (!version) return null;
    return this.api.get(`v1/links/${encodeURIComponent(this.id)}/models/${version}`).catch(() => null);
  }

  #ofContext() {
    const parts = new Map();
    for (const one of this.columns) parts.set(one.part, (parts.get(one.part) ?? 0) + one.weight);
    const weights = [...parts].sort((a, b) => b[1] - a[1]);
    const heaviest = [...this.columns]
      .sort((a, b) => b.weight - a.weight)
      .slice(0, 3)
      .map((one) => `${one.column} (${percent(one.weight)})`)
      .join(", ");
    this.rows.show({
      label:
        "Weight of each part of the context in the learnt metric: " +
        weights.map(([part, weight]) => `${partName(part)} ${percent(weight, 1)}`).join(", "),
      rows: weights.map(([part, weight]) => ({
        name: partName(part),
        from: 0,
        to: weight,
        text: percent(weight, 1),
      })),
    });
    return [
      this.rows.element,
      el("p", { class: "note" }, `Heaviest columns: ${heaviest}. A number counts slots back, 1 is the newest.`),
    ];
  }

  #ofLags(link) {
    const heaviest = [...this.lags]
      .sort((a, b) => b.weight - a.weight)
      .slice(0, 3)
      .map((one) => `${one.lag} (${percent(one.weight)})`)
      .join(", ");
    const weights = this.lags.map((one) => one.weight);
    const isEven = Math.max(...weights) < 1.02 * Math.min(...weights);
    this.bars.show({
      label: `Weight of each of ${this.lags.length} lags in the learnt metric; the heaviest are ${heaviest}`,
      below: "lag, slots back",
      write: (value) => percent(value, 0),
      bars: this.lags.map((one) => ({
        name: String(one.lag),
        value: one.weight,
        title: `lag ${one.lag}, ${one.lag * link.slot_minutes} min back: ${percent(one.weight, 1)}`,
      })),
    });
    return [
      this.bars.element,
      el(
        "p",
        { class: "note" },
        `${isEven ? "All lags weigh the same" : `Heaviest lags: ${heaviest}`}. `,
        `Lag 1 is the newest count; a lag is ${link.slot_minutes} minutes.`,
      ),
    ];
  }
}
