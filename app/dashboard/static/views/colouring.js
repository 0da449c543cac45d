/** Quantities that the map shows: steps of a scale, each with a colour, a width and a number in the legend. */

import { number, percent, signed } from "../formats.js";

/** Least count that a change is divided by: three vehicles instead of two are no rush hour. */
const FLOOR = 20;

/**
 * @typedef {import("../city.js").Row} Row
 * @typedef {{label: string, scale: string, steps: {most: number, label: string, width: number}[], of: (row: Row) => number | null,
 *   write: (value: number) => string, note: string}} Colouring
 */

/** Round steps up to the most that was seen. @param {number} most vehicles per hour @returns {Colouring} */
function byFlow(most) {
  const step = niceStep(most / 6);
  return {
    label: "Expected flow",
    scale: "flow",
    note: "vehicles per hour in the forecast slot",
    of: (row) => row.forecast?.flow ?? null,
    write: (value) => `${number(value)} vehicles per hour`,
    steps: [1, 2, 3, 4, 5, 6].map((i) => ({
      most: i === 6 ? Infinity : i * step,
      label: i === 6 ? `${5 * step}+` : `${(i - 1) * step}–${i * step}`,
      width: i,
    })),
  };
}

/** @type {Colouring} */
const byChange = {
  label: "Change against now",
  scale: "change",
  note: `expected count against the newest, in % of it (of ${FLOOR} if it is smaller)`,
  of: (row) => (row.change === null ? null : row.change / Math.max(row.health?.newest_count ?? 0, FLOOR)),
  write: (value) => `${signed(value * 100)} % against now`,
  steps: [
    { most: -0.5, label: "▼ −50 %", width: 6 },
    { most: -0.25, label: "▼ −25 %", width: 5 },
    { most: -0.1, label: "▼ −10 %", width: 3 },
    { most: 0.1, label: "about the same", width: 2 },
    { most: 0.25, label: "▲ +10 %", width: 3 },
    { most: 0.5, label: "▲ +25 %", width: 5 },
    { most: Infinity, label: "▲ +50 %", width: 6 },
  ],
};

/** @type {Colouring} */
const byAccuracy = {
  label: "Accuracy",
  scale: "accuracy",
  note: "share of slots of the last 24 h with a GEH below 5",
  of: (row) => row.accuracy?.geh_pass_share ?? null,
  write: (value) => `GEH below 5 in ${percent(value)} of slots`,
  steps: [
    { most: 0.5, label: "below 50 %", width: 6 },
    { most: 0.7, label: "50–70 %", width: 5 },
    { most: 0.85, label: "70–85 %", width: 4 },
    { most: 0.95, label: "85–95 %", width: 3 },
    { most: Infinity, label: "95 % and more", width: 2 },
  ],
};

export const COLOURINGS = { flow: byFlow, change: () => byChange, accuracy: () => byAccuracy };
export const COLOURING_NAMES = { flow: "Expected flow", change: "Change against now", accuracy: "Accuracy" };

/** @param {Colouring} colouring @param {number | null} value */
export const stepOf = (colouring, value) =>
  value === null ? -1 : colouring.steps.findIndex((step) => value < step.most || step.most === Infinity);

function niceStep(rough) {
  if (!(rough > 0)) return 10;
  const power = 10 ** Math.floor(Math.log10(rough));
  return Math.max(
    1,
    [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((one) => one >= rough) ?? rough,
  );
}
