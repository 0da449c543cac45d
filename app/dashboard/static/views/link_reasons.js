/** Why a forecast says what it says: when it looked like this before, and which lags the learnt metric looks at. */

import { BarChart } from "../charts/bars.js";
import { TimeChart } from "../charts/time_chart.js";
import { el, put } from "../dom.js";
import { asTable, panel } from "../figure.js";
import { dayTime, many, number, percent } from "../formats.js";
import { addressOf } from "../router.js";
import { empty } from "../states.js";

const CURVES = 5; // neighbours drawn
const BEFORE = 16; // slots of each
const MOST_KEPT = 200;

export class LinkReasons {
  /** @param {import("../api.js").Api} api @param {string} id */
  constructor(api, id) {
    this.api = api;
    this.id = id;
    this.neighbours = [];
    this.lags = [];
    this.curves = new Map(); // what was counted then does not change
    this.weights = new Map(); // nor does a version's metric
    this.chart = new TimeChart();
    this.list = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Neighbours" });
    this.place = el("div");
    const table = () => ({
      name: `${id} neighbours`,
      columns: ["link_id", "slot_start", "weight", "count_1", "count_2", "count_3", "count_4"],
      rows: this.neighbours.map((one) => [
        one.link_id ?? id,
        one.slot_start,
        one.weight,
        ...[0, 1, 2, 3].map((h) => one.counts?.[h] ?? null),
      ]),
    });
    this.element = panel(
      { title: "When it looked like this before", kind: "wide", note: "the forecast is their weighted mean", table },
      this.place,
    );
    this.bars = new BarChart();
    const lagTable = () => ({
      name: `${id} lag weights`,
      columns: ["lag", "minutes_back", "weight"],
      rows: this.lags.map((one) => [one.lag, one.lag * this.slotMinutes, one.weight]),
    });
    this.lagNote = el("span", {});
    this.lagPlace = el("div");
    this.lagWritten = asTable(lagTable);
    this.slotMinutes = 15;
    this.metric = panel(
      { title: "What the learnt metric looks at", note: this.lagNote, table: lagTable },
      this.lagPlace,
    );
  }

  /** @param {any} answer @param {any} link @param {any} model on the shelf, or null */
  async show(answer, link, model) {
    const { explanation, forecasts } = answer;
    this.slotMinutes = link.slot_minutes;
    if (!explanation) {
      this.neighbours = this.lags = [];
      const why = forecasts[0].degraded_reason ?? "no trained model speaks";
      put(this.place, empty("No neighbours", `${forecasts[0].method} speaks: ${why}.`));
      put(this.lagPlace, empty("No metric", "Only a trained model has one."));
      this.lagNote.textContent = "";
      return;
    }
    this.neighbours = explanation.neighbours ?? [];
    put(this.place, el("div", { class: "beside" }, this.chart.element, this.list));
    put(this.list, this.#table(link));
    await Promise.all([this.#showCurves(link, forecasts), this.#showMetric(link, explanation, model)]);
  }

  #table(link) {
    const most = Math.max(...this.neighbours.map((one) => one.weight), 1e-9);
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
          ...["Weight", "Then", ...[1, 2, 3, 4].map((h) => `+${h}`)].map((name, i) =>
            el("th", { scope: "col", class: i === 1 ? null : "number" }, name),
          ),
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
              percent(one.weight, 1),
            ),
            el(
              "th",
              { scope: "row" },
              i < CURVES && el("span", { class: "dot", "aria-hidden": "true" }),
              dayTime(one.slot_start, link.zone),
              one.link_id &&
                one.link_id !== this.id &&
                el("a", { href: addressOf(["links", one.link_id]) }, ` on ${one.link_id}`),
            ),
            ...[0, 1, 2, 3].map((h) => el("td", { class: "number" }, number(one.counts?.[h]))),
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
      this.#curve(now, slot, BEFORE, 0, false),
      ...heaviest.map((one) => this.#curve(one, slot, BEFORE, 4, true).catch(() => [])),
    ]);
    const shifted = (curve, start) =>
      curve.map((one) => ({ at: Date.parse(one.slot_start) - start + next, value: one.count }));
    /** @type {import("../charts/time_chart.js").Series[]} */
    const series = [
      ...then.map((curve, i) => ({
        kind: /** @type {"line"} */ ("line"),
        name: `neighbour n${i}`,
        label: dayTime(heaviest[i].slot_start, link.zone),
        points: shifted(curve, Date.parse(heaviest[i].slot_start)),
      })),
      { kind: "line", name: "count", label: "now", points: shifted(today, next) },
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
      height: 190,
      now: next,
      label: `The last counts beside those of the ${heaviest.length} heaviest neighbours, moved to now`,
      series,
    });
  }

  async #curve(one, slot, before, after, keeps) {
    const start = Date.parse(one.slot_start);
    const name = `${one.link_id ?? this.id}@${start}`;
    if (keeps && this.curves.has(name)) return this.curves.get(name);
    const [from, to] = [start - before * slot, start + after * slot].map((at) => new Date(at).toISOString());
    const { counts } = await this.api.get(
      `v1/links/${encodeURIComponent(one.link_id ?? this.id)}/counts?from=${from}&to=${to}`,
    );
    if (keeps) {
      if (this.curves.size >= MOST_KEPT) this.curves.clear();
      this.curves.set(name, counts);
    }
    return counts;
  }

  async #showMetric(link, explanation, model) {
    const version = model?.version;
    if (version && !this.weights.has(version)) {
      const detail = await this.api.get(`v1/links/${encodeURIComponent(this.id)}/models/${version}`).catch(() => null);
      this.weights.set(version, detail?.lag_weights ?? null);
    }
    const found = this.weights.get(version) ?? explanation.lags ?? [];
    const elsewhere = (one) => (one.link_id && one.link_id !== this.id ? one.link_id : "");
    this.lags = [...found].sort((a, b) => elsewhere(a).localeCompare(elsewhere(b)) || a.lag - b.lag);
    const rank = explanation.rank ?? model?.rank;
    this.lagNote.textContent = [
      rank && `rank ${rank}`,
      many(this.lags.length, "lag"),
      model && `${model.algorithm} version ${model.version}`,
    ]
      .filter(Boolean)
      .join(", ");
    if (!this.lags.length) {
      put(this.lagPlace, empty("No lag weights", "This model does not tell them."));
      return;
    }
    const heaviest = [...this.lags]
      .sort((a, b) => b.weight - a.weight)
      .slice(0, 3)
      .map((one) => `${[elsewhere(one), one.lag].filter(Boolean).join(" ")} (${percent(one.weight)})`)
      .join(", ");
    const isEven =
      Math.max(...this.lags.map((one) => one.weight)) < 1.02 * Math.min(...this.lags.map((one) => one.weight));
    put(
      this.lagPlace,
      this.bars.element,
      el(
        "p",
        { class: "note" },
        `${isEven ? "All lags weigh the same" : `Heaviest lags: ${heaviest}`}. `,
        `Lag 1 is the newest count; a lag is ${link.slot_minutes} minutes.`,
      ),
      this.lagWritten.element,
    );
    this.bars.show({
      label: `Weight of each of ${this.lags.length} lags in the learnt metric; the heaviest are ${heaviest}`,
      below: "lag, slots back",
      write: (value) => percent(value, 0),
      bars: this.lags.map((one) => ({
        name: String(one.lag),
        value: one.weight,
        title: `${elsewhere(one)} lag ${one.lag}, ${one.lag * link.slot_minutes} min back: ${percent(one.weight, 1)}`,
      })),
    });
    this.lagWritten.refresh();
  }
}
