/** The columns of the network's table. */

import { KINDS, urgency } from "../attention.js";
import { el } from "../dom.js";
import { age, NOTHING, number, percent, signed, methodName } from "../formats.js";
import { addressOf } from "../router.js";

/** @returns {import("../data_table.js").Column<import("../city.js").Row>[]} */
export function networkColumns() {
  return [
    {
      name: "link",
      label: "Link",
      value: (row) => row.id,
      text: (row) => `${row.id} ${row.link.name}`,
      cell: (row) => linkCell(row),
    },
    {
      name: "attention",
      label: "Attention",
      title: "What is wrong, the most serious first",
      downFirst: true,
      value: urgency,
      text: (row) => JSON.stringify([row.attention, row.health !== null]),
      cell: (row) => attentionCell(row),
    },
    {
      name: "expected_count",
      label: "Expected",
      title: "Vehicles expected in the slot",
      numeric: true,
      downFirst: true,
      value: (row) => row.forecast?.expected_count ?? null,
      text: (row) => number(row.forecast?.expected_count, 0),
    },
    {
      name: "interval",
      label: "Interval",
      title: "The 90 % interval of the count; sorts by its width",
      numeric: true,
      downFirst: true,
      value: (row) =>
        row.forecast?.upper === null || !row.forecast ? null : row.forecast.upper - (row.forecast.lower ?? 0),
      text: intervalText,
    },
    {
      name: "change",
      label: "Change",
      title: "Expected count minus the newest count",
      numeric: true,
      downFirst: true,
      value: (row) => row.change,
      text: (row) => signed(row.change),
    },
    {
      name: "rmse",
      label: "RMSE",
      title: "Realised error of the last 24 h: root of its mean square, vehicles per slot",
      numeric: true,
      downFirst: true,
      value: (row) => row.accuracy?.rmse ?? null,
      text: (row) => number(row.accuracy?.rmse, 1),
    },
    {
      name: "mare",
      label: "MARE",
      title: "Realised error of the last 24 h: mean absolute, relative to the count",
      numeric: true,
      downFirst: true,
      value: (row) => row.accuracy?.mare ?? null,
      text: (row) => percent(row.accuracy?.mare),
    },
    {
      name: "geh_pass_share",
      label: "GEH<5",
      title: "Share of slots with a GEH below 5; 85 % is required",
      numeric: true,
      value: (row) => row.accuracy?.geh_pass_share ?? null,
      text: (row) => percent(row.accuracy?.geh_pass_share),
    },
    {
      name: "feed_age_seconds",
      label: "Feed age",
      title: "Since the end of the newest slot with a count",
      numeric: true,
      downFirst: true,
      value: feedAge,
      text: (row) => age(feedAge(row)),
    },
    {
      name: "detector",
      label: "Detector",
      value: (row) => row.health?.state ?? null,
      text: (row) => (row.health ? [row.health.state, ...row.health.verdicts].join(" ") : NOTHING),
      cell: detectorCell,
    },
    {
      name: "method",
      label: "Method",
      title: "The method of the forecast: the experts together, a trained model, the profile or the last count",
      value: (row) => row.forecast?.method ?? null,
      text: (row) => methodText(row),
    },
  ];
}

const feedAge = (row) => row.health?.data_age_seconds ?? row.forecast?.data_age_seconds ?? null;

const linkCell = (row) =>
  el(
    "a",
    { href: addressOf(["links", row.id]) },
    el("span", { class: "id" }, row.id),
    row.link.name !== row.id && el("span", { class: "name" }, row.link.name),
  );

function attentionCell(row) {
  if (!row.attention.length)
    return row.health ? el("span", { class: "fine" }, "–") : el("span", { class: "fine" }, "…");
  return el(
    "ul",
    { class: "badges" },
    ...row.attention.map(({ kind, reason }) =>
      el(
        "li",
        { class: `badge level-${KINDS[kind].level}`, title: reason },
        el("span", { "aria-hidden": "true" }, `${KINDS[kind].sign} `),
        KINDS[kind].label,
        el("span", { class: "visually-hidden" }, `: ${reason}`),
      ),
    ),
  );
}

function intervalText({ forecast }) {
  if (!forecast || forecast.upper === null) return NOTHING;
  return `${number(forecast.lower ?? 0)}–${number(forecast.upper)}`;
}

const STATES = { ok: "sound", suspect: "suspect", stale: "stale", silent: "silent" };

function detectorCell({ health }) {
  if (!health) return NOTHING;
  const found = health.verdicts.join(", ");
  return el(
    "span",
    { class: `state ${health.state}`, title: found ? `found in the last 14 days: ${found}` : "" },
    STATES[health.state],
  );
}

const methodText = ({ forecast }) => (forecast ? methodName(forecast) : NOTHING);
