/** Accuracy of a link's forecasts: figures over a span, and their course. */

import { TimeChart } from "../charts/time_chart.js";
import { el, put } from "../dom.js";
import { asTable, panel } from "../figure.js";
import { number, percent, signed } from "../formats.js";
import { empty } from "../states.js";

const HOUR = 3_600_000;
const COVERAGE = 0.9;
const GEH_SHARE = 0.85;
const FIGURES = [
  "rmse",
  "mare",
  "mae",
  "bias",
  "wape",
  "geh_mean",
  "geh_pass_share",
  "coverage",
  "skill_profile",
  "skill_last_week",
  "n_used",
  "n_missing",
  "slots_without_forecast",
];

export class LinkAccuracy {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.series = [];
    this.tiles = el("div", { class: "tiles" });
    this.perHorizon = [];
    this.horizons = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Accuracy by horizon" });
    this.byHorizon = panel(
      {
        title: "Accuracy by horizon",
        note: "over the same span",
        table: () => ({
          name: `${id} accuracy by horizon`,
          columns: ["horizon", ...FIGURES],
          rows: this.perHorizon.map((one) => [one.horizon, ...FIGURES.map((name) => one[name])]),
        }),
      },
      this.horizons,
    );
    this.charts = { rmse: new TimeChart(), mare: new TimeChart(), geh: new TimeChart(), coverage: new TimeChart() };
    const table = () => ({
      name: `${id} accuracy`,
      columns: ["from", ...FIGURES],
      rows: this.series.map((one) => [one.from, ...FIGURES.map((name) => one[name])]),
    });
    this.written = asTable(table);
    this.drawn = el("div", { class: "small-charts" }, ...Object.values(this.charts).map((chart) => chart.element));
    this.unscored = empty("No slot of the span is scored yet", "A slot is scored once it has both a forecast and a count.");
    this.note = el("span", {});
    this.element = panel(
      { title: "Accuracy", kind: "wide", note: this.note, table },
      this.tiles,
      this.drawn,
      this.unscored,
      this.written.element,
    );
  }

  /** @param {any} figures @param {any} byHorizon @param {string} zone @param {{span: string, horizon: number}} asked */
  show(figures, byHorizon, zone, asked) {
    this.series = figures.series ?? [];
    this.note.textContent = [
      `horizon ${asked.horizon}`,
      `${figures.n_used} slots scored`,
      `${figures.n_missing} without a count`,
      `${figures.slots_without_forecast} without a forecast`,
    ].join(", ");
    const isScored = figures.n_used > 0;
    for (const part of [this.tiles, this.drawn, this.written.element]) part.hidden = !isScored;
    this.unscored.hidden = isScored;
    put(
      this.tiles,
      tile("RMSE", number(figures.rmse, 1), "vehicles per slot"),
      tile("MARE", percent(figures.mare, 1), "of the count"),
      tile(
        "GEH below 5",
        percent(figures.geh_pass_share),
        figures.passes_geh === false ? "▽ below 85 %" : "required: 85 %",
      ),
      tile("Coverage", percent(figures.coverage), "nominal: 90 %"),
      tile("Bias", signed(figures.bias, 1), "expected − count"),
      tile("Skill", percent(figures.skill_profile), "against the profile"),
    );
    const slot = ["24h", "3d"].includes(asked.span) ? HOUR : 24 * HOUR;
    const per = slot === HOUR ? "hour" : "day";
    const points = (name) => this.series.map((one) => ({ at: Date.parse(one.from), value: one[name] }));
    const common = { zone, slot, height: 130 };
    this.charts.rmse.show({
      ...common,
      decimals: 0,
      label: `RMSE by ${per}`,
      series: [{ kind: "bars", name: "rmse", label: `RMSE by ${per}`, points: points("rmse") }],
    });
    this.charts.mare.show({
      ...common,
      write: (value) => percent(value),
      label: `MARE by ${per}`,
      series: [{ kind: "bars", name: "mare", label: `MARE by ${per}`, points: points("mare") }],
    });
    this.charts.geh.show({
      ...common,
      most: 0.99,
      write: (value) => percent(value),
      label: `Share of slots with a GEH below 5, by ${per}`,
      series: [
        { kind: "bars", name: "geh", label: `GEH below 5, by ${per}`, points: points("geh_pass_share") },
        { kind: "level", name: "required", label: "required: 85 %", points: [], value: GEH_SHARE },
      ],
    });
    this.charts.coverage.show({
      ...common,
      most: 0.99,
      write: (value) => percent(value),
      label: `Share of counts inside the interval, by ${per}`,
      series: [
        { kind: "bars", name: "coverage", label: `coverage, by ${per}`, points: points("coverage") },
        { kind: "level", name: "required", label: "nominal: 90 %", points: [], value: COVERAGE },
      ],
    });
    this.perHorizon = byHorizon.series ?? [];
    put(this.horizons, isScored ? horizonTable(this.perHorizon) : empty("No slot is scored yet"));
    this.written.refresh();
  }
}

const tile = (what, value, note) =>
  el(
    "div",
    { class: "tile" },
    el("span", { class: "what" }, what),
    el("strong", {}, value),
    el("span", { class: "note" }, note),
  );

function horizonTable(series) {
  /** @type {[string, (one: any) => string][]} */
  const names = [
    ["RMSE", (one) => number(one.rmse, 1)],
    ["MARE", (one) => percent(one.mare, 1)],
    ["GEH<5", (one) => percent(one.geh_pass_share)],
    ["Coverage", (one) => percent(one.coverage)],
    ["Skill", (one) => percent(one.skill_profile)],
    ["Scored", (one) => String(one.n_used)],
  ];
  return el(
    "table",
    {},
    el("caption", { class: "visually-hidden" }, "Accuracy by horizon"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, "Slots ahead"),
        ...names.map(([name]) => el("th", { scope: "col", class: "number" }, name)),
      ),
    ),
    el(
      "tbody",
      {},
      ...series.map((one) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, String(one.horizon)),
          ...names.map(([, write]) => el("td", { class: "number" }, write(one))),
        ),
      ),
    ),
  );
}
