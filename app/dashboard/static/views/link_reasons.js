/** Similar moments: the neighbours of a link's forecast, in its own past or that of other links. */

import { TimeChart } from "../charts/time_chart.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { dayTime, number, percent, signed } from "../formats.js";
import { addressOf } from "../router.js";
import { empty } from "../states.js";

const CURVES = 5; // neighbours drawn
const BEFORE = 16; // slots of each
const MOST_KEPT = 200;
const AHEAD = [1, 2, 3, 4];

export class LinkReasons {
  /** @param {import("../api.js").Api} api @param {string} id */
  constructor(api, id) {
    this.api = api;
    this.id = id;
    this.neighbours = [];
    this.curves = new Map(); // counts of the past rarely change
    this.chart = new TimeChart();
    this.list = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Neighbours" });
    this.legend = el("p", { class: "note" });
    this.place = el("div");
    this.note = el("span", {});
    const table = () => ({
      name: `${id} neighbours`,
      columns: [
        "link_id",
        "slot_start",
        "weight",
        ...AHEAD.map((h) => `count_${h}`),
        ...AHEAD.map((h) => `missed_${h}`),
      ],
      rows: this.neighbours.map((one) => [
        one.link_id,
        one.slot_start,
        one.weight,
        ...AHEAD.map((h) => one.counts[h - 1] ?? null),
        ...AHEAD.map((h) => one.missed?.[h - 1] ?? null),
      ]),
    });
    this.element = panel({ title: "Similar moments in the past", kind: "wide", note: this.note, table }, this.place);
  }

  /** @param {any} answer @param {any} link @param {{name: string}} model that is explained */
  async show({ explanation, forecasts }, link, model) {
    this.neighbours = explanation?.neighbours ?? [];
    this.note.textContent = this.neighbours.length ? `${model.name}: ${useOfNeighbours(explanation.shares)}` : "";
    if (!explanation) {
      const why = forecasts[0].degraded_reason ?? "it won on held-out days";
      put(this.place, empty("No neighbours", `The forecast is by ${forecasts[0].method}: ${why}.`));
      return;
    }
    if (!this.neighbours.length) {
      const { shares } = explanation;
      const why =
        shares && !shares.own && !shares.network
          ? `The memories of ${model.name} have no share: its forecast is its linear base alone.`
          : "The model has no similar moment.";
      put(this.place, empty("No neighbours", why));
      return;
    }
    put(this.list, this.#table(link));
    this.legend.textContent = this.neighbours.some((one) => one.missed)
      ? `+1 to +4: the counts of that link in the next slots. Base error: count minus linear base at +1, in vehicles of ${this.id}.`
      : "+1 to +4: the counts of the next slots.";
    if (!this.place.contains(this.list))
      put(this.place, el("div", { class: "beside" }, this.chart.element, el("div", {}, this.list, this.legend)));
    await this.#showCurves(link, forecasts);
  }

  #table(link) {
    const most = Math.max(...this.neighbours.map((one) => one.weight), 1e-9);
    const decimals = most < 0.01 ? 3 : 1; // a network's model uses hundreds of neighbours
    const hasMissed = this.neighbours.some((one) => one.missed);
    const names = ["Weight", "Then", ...AHEAD.map((h) => `+${h}`)];
    return el(
      "table",
      {},
      el("caption", { class: "visually-hidden" }, "Neighbours by weight"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ...names.map((name, i) => el("th", { scope: "col", class: i === 1 ? null : "number" }, name)),
          hasMissed && el("th", { scope: "col", class: "number" }, "Base error"),
        ),
      ),
      el(
        "tbody",
        {},
        ...this.neighbours.map((one, i) =>
          el(
            "tr",
            { class: i < CURVES ? `curve-${i}` : null },
            el(
              "td",
              { class: "number weight" },
              el("meter", { min: 0, max: most, value: one.weight, "aria-hidden": "true" }),
              percent(one.weight, decimals),
            ),
            el(
              "th",
              { scope: "row" },
              i < CURVES && el("span", { class: "dot", "aria-hidden": "true" }),
              dayTime(one.slot_start, link.zone),
              one.link_id !== this.id && " on ",
              one.link_id !== this.id && el("a", { href: addressOf(["links", one.link_id]) }, one.link_id),
            ),
            ...AHEAD.map((h) => el("td", { class: "number" }, number(one.counts[h - 1]))),
            hasMissed && el("td", { class: "number" }, signed(one.missed?.[0], 1)),
          ),
        ),
      ),
    );
  }

  async #showCurves(link, forecasts) {
    const slot = link.slot_minutes * 60_000;
    const next = Date.parse(forecasts[0].slot_start);
    const heaviest = this.neighbours.slice(0, CURVES);
    const now = { link_id: this.id, slot_start: forecasts[0].slot_start };
    const [today, ...then] = await Promise.all([
      this.#curve(now, slot, 0, false),
      ...heaviest.map((one) => this.#curve(one, slot, 4, true).catch(() => [])),
    ]);
    const moved = (curve, start, scale = 1) =>
      curve.map((one) => ({
        at: Date.parse(one.slot_start) - start + next,
        value: one.count === null ? null : one.count * scale,
      }));
    const current = moved(today, next);
    /** @type {import("../charts/time_chart.js").Series[]} */
    const series = [
      ...then.map((curve, i) => {
        const { link_id: id, slot_start: start } = heaviest[i];
        const isOther = id !== this.id;
        // Another link has other counts: at the level of this one, its course can be compared.
        const scale = isOther ? levelOf(current, moved(curve, Date.parse(start))) : 1;
        return {
          kind: /** @type {"line"} */ ("line"),
          name: `neighbour n${i}`,
          label: dayTime(start, link.zone) + (isOther ? ` on ${id}, × ${number(scale, 2)}` : ""),
          points: moved(curve, Date.parse(start), scale),
        };
      }),
      { kind: "line", name: "count", label: "now", points: current },
      {
        kind: "stars",
        name: "ahead",
        label: "expected",
        points: forecasts.map((one) => ({ at: Date.parse(one.slot_start), value: one.expected_count })),
      },
    ];
    this.chart.show({
      zone: link.zone,
      slot,
      height: 240,
      now: next,
      label: `The last counts beside those of the ${heaviest.length} heaviest neighbours, moved to now`,
      series,
    });
  }

  async #curve(one, slot, after, keeps) {
    const start = Date.parse(one.slot_start);
    const name = `${one.link_id}@${start}`;
    if (keeps && this.curves.has(name)) return this.curves.get(name);
    const [from, to] = [start - BEFORE * slot, start + after * slot].map((at) => new Date(at).toISOString());
    const { counts } = await this.api.get(`v1/links/${encodeURIComponent(one.link_id)}/counts?from=${from}&to=${to}`);
    if (keeps) {
      if (this.curves.size >= MOST_KEPT) this.curves.clear();
      this.curves.set(name, counts);
    }
    return counts;
  }
}

/** Return how the neighbours are used: models of one link average them, a network's corrects its linear base by them. */
function useOfNeighbours(shares) {
  if (!shares) return "the forecast is their weighted mean";
  const parts = [shares.own && `${percent(shares.own)} of the errors in the link's own past`];
  parts.push(shares.network && `${percent(shares.network)} of the errors in the network's past`);
  return `the heaviest; the linear base is corrected by ${parts.filter(Boolean).join(" and ")}`;
}

/** Return the factor that brings the other points to the same level, over the times that both have. */
function levelOf(points, others) {
  const known = new Map(points.filter((one) => one.value !== null).map((one) => [one.at, one.value]));
  const both = others.filter((one) => one.value !== null && known.has(one.at));
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const level = sum(both.map((one) => known.get(one.at))) / sum(both.map((one) => one.value));
  return Number.isFinite(level) && level > 0 ? level : 1;
}
