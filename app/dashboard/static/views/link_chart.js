/** Counts and forecasts of a link: as a chart, as tiles for the next slots, and as rows. */

import { TimeChart } from "../charts/time_chart.js";
import { el, put } from "../dom.js";
import { asTable } from "../figure.js";
import { clockTime, dayTime, fullTime, many, number, percent, methodName } from "../formats.js";

const COLUMNS = [
  "slot_start",
  "local_time",
  "count",
  "quality",
  "verdict",
  "expected_count",
  "lower",
  "upper",
  "realised_error",
  "method",
  "model_version",
];

export class LinkChart {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.rows = [];
    this.tiles = el("div", { class: "forecast-tiles" });
    this.chart = new TimeChart();
    this.written = asTable(() => this.table());
    this.element = el("div", {}, this.tiles, this.chart.element, this.written.element);
  }

  /** @returns {import("../csv.js").Table} */
  table() {
    return { name: `${this.id} counts and forecasts`, columns: COLUMNS, rows: this.rows };
  }

  /**
   * @param {any} link
   * @param {{forecasts: any[], counts: any[], past: any[]}} known the latest forecasts, the counts, and forecasts issued before
   * @param {{horizon: number, length: number, label: string}} asked
   */
  show(link, { forecasts, counts, past }, asked) {
    const zone = link.zone;
    const newestEnd = Date.parse(forecasts[0].slot_start);
    const slot = link.slot_minutes * 60_000;
    const before = lastIssued(past).filter((one) => Date.parse(one.slot_start) < newestEnd);
    const earlier = before.map(asPoint);
    const ahead = forecasts.map(asPoint);
    const [first] = forecasts;
    put(
      this.tiles,
      ...forecasts.map((one) =>
        el(
          "div",
          { class: one.horizon === asked.horizon ? "tile chosen" : "tile" },
          el("span", { class: "what" }, `${clockTime(one.slot_start, zone)}`),
          el("strong", {}, number(one.expected_count)),
          el(
            "span",
            { class: "note" },
            one.upper === null ? "no interval" : `${number(one.lower ?? 0)}–${number(one.upper)}`,
          ),
        ),
      ),
      el(
        "p",
        { class: "note" },
        `Forecast by ${methodName(first, "version ")}, `,
        `from counts up to ${dayTime(first.as_of_slot, zone)}.`,
        first.filled_lags ? ` ${first.filled_lags} gaps in its lag window were filled from the profile.` : "",
        first.degraded_reason ? ` Reason: ${first.degraded_reason}.` : "",
      ),
    );
    const level = percent(first.level);
    const next = forecasts.map((one) => `${clockTime(one.slot_start, zone)} ${number(one.expected_count)}`).join(", ");
    this.chart.show({
      zone,
      slot,
      height: 280,
      now: newestEnd,
      from: newestEnd - asked.length,
      to: newestEnd + 4 * slot,
      label:
        `Counts of ${link.name} over the ${asked.label}; forecasts ${many(asked.horizon, "slot")} ahead as stars ` +
        `with their ${level} interval. Next: ${next}.`,
      series: [
        { kind: "band", name: "interval", label: `${level} interval`, points: [...earlier, ...ahead] },
        {
          kind: "line",
          name: "count",
          label: "count",
          points: counts.map((one) => ({ at: Date.parse(one.slot_start), value: one.count })),
        },
        {
          kind: "dots",
          name: "suspect",
          label: "suspect or imputed",
          points: counts
            .filter((one) => one.verdict || (one.quality && one.quality !== "observed"))
            .map((one) => ({ at: Date.parse(one.slot_start), value: one.count })),
        },
        { kind: "stars", name: "past", label: `forecast ${asked.horizon} ahead`, points: earlier },
        { kind: "stars", name: "ahead", label: "expected now", points: ahead },
      ],
    });
    this.rows = joined(counts, before, forecasts, zone);
    this.written.refresh();
  }
}

const asPoint = (one) => ({
  at: Date.parse(one.slot_start),
  value: one.expected_count,
  lower: one.lower,
  upper: one.upper,
});

/** Of several forecasts for a slot the last issued. */
function lastIssued(past) {
  const found = new Map();
  for (const one of past) {
    const other = found.get(one.slot_start);
    if (!other || other.issued_at < one.issued_at) found.set(one.slot_start, one);
  }
  return [...found.values()];
}

function joined(counts, before, ahead, zone) {
  const issued = new Map(before.map((one) => [one.slot_start, one]));
  const row = (slot, count, one) => [
    slot,
    fullTime(slot, zone),
    count?.count ?? null,
    count?.quality ?? null,
    count?.verdict ?? null,
    one?.expected_count ?? null,
    one?.lower ?? null,
    one?.upper ?? null,
    one?.realised_error ?? null,
    one?.method ?? null,
    one?.model_version ?? null,
  ];
  return [
    ...counts.map((count) => row(count.slot_start, count, issued.get(count.slot_start))),
    ...ahead.map((one) => row(one.slot_start, null, one)),
  ];
}
