/** Quantities that the map shows: steps of a scale, each with a colour, a width and a number in the legend. */

import { number, percent, signed } from "../formats.js";

/** Least count that a change is divided by: three vehicles instead of two are no rush hour. */
const FLOOR = 20;

/**
 * @typedef {import("../city.js").Row} Row
 * @typedef {{label: string, scale: string, steps: {most: number, label: string, width: number}[], of: (row: Row) => number | null,
 *   write: (value: number) => string, note: string}} Colouring
 */

const DEVIATIONS = [
  { most: -0.5, label: "▼ −50 %", width: 6 },
  { most: -0.25, label: "▼ −25 %", width: 5 },
  { most: -0.1, label: "▼ −10 %", width: 3 },
  { most: 0.1, label: "about the same", width: 2 },
  { most: 0.25, label: "▲ +10 %", width: 3 },
  { most: 0.5, label: "▲ +25 %", width: 5 },
  { most: Infinity, label: "▲ +50 %", width: 6 },
];

/** @type {Colouring} */
const byDeviation = {
  label: "Deviation from the profile",
  scale: "change",
  note: `expected count against the profile, in % of it (of ${FLOOR} if it is smaller)`,
  of: ({ forecast }) => {
    const usual = forecast?.profile_count ?? null;
    return usual === null ? null : (forecast.expected_count - usual) / Math.max(usual, FLOOR);
  },
  write: (value) => `${signed(value * 100)} % against the profile`,
  steps: DEVIATIONS,
};

/** @type {Colouring} */
const byShare = {
  label: "Share of capacity or range",
  scale: "flow",
  note: "expected count in % of the capacity, or of the largest counts of the last fortnight",
  of: ({ forecast, health, link }) => {
    const most = link.capacity ? (link.capacity * link.slot_minutes) / 60 : health?.high_count;
    return forecast && most ? forecast.expected_count / most : null;
  },
  write: (value) => `${percent(value)} of its capacity or range`,
  steps: [
    { most: 0.2, label: "below 20 %", width: 1 },
    { most: 0.4, label: "20–40 %", width: 2 },
    { most: 0.6, label: "40–60 %", width: 3 },
    { most: 0.8, label: "60–80 %", width: 4 },
    { most: 1, label: "80–100 %", width: 5 },
    { most: Infinity, label: "100 % and more", width: 6 },
  ],
};

/** @type {Colouring} */
const byFlow = {
  label: "Expected flow",
  scale: "flow",
  note: "vehicles per hour in the forecast slot",
  of: (row) => row.forecast?.flow ?? null,
  write: (value) => `${number(value)} vehicles per hour`,
  steps: [
    { most: 100, label: "below 100", width: 1 },
    { most: 250, label: "100–250", width: 2 },
    { most: 500, label: "250–500", width: 3 },
    { most: 1000, label: "500–1000", width: 4 },
    { most: 1500, label: "1000–1500", width: 5 },
    { most: Infinity, label: "1500 and more", width: 6 },
  ],
};

const FEED_STATES = ["dead", "suspect", "late", "fresh"];

/** @type {Colouring} */
const byFeed = {
  label: "Feed",
  scale: "feed",
  note: "the newest count: none for too long, of a suspect detector, more than a slot late, or fresh",
  of: ({ attention, health, link }) => {
    if (!health) return null;
    if (attention.some((one) => one.kind === "dead")) return 0;
    if (attention.some((one) => one.kind === "suspect")) return 1;
    return (health.data_age_seconds ?? 0) > link.slot_minutes * 60 ? 2 : 3;
  },
  write: (value) => FEED_STATES[value],
  steps: [
    { most: 1, label: "✕ dead", width: 6 },
    { most: 2, label: "? suspect", width: 5 },
    { most: 3, label: "late", width: 3 },
    { most: Infinity, label: "fresh", width: 2 },
  ],
};

/** @type {Colouring} */
const byChange = {
  label: "Change against now",
  scale: "change",
  note: `expected count against the newest, in % of it (of ${FLOOR} if it is smaller)`,
  of: (row) => (row.change === null ? null : row.change / Math.max(row.health?.newest_count ?? 0, FLOOR)),
  write: (value) => `${signed(value * 100)} % against now`,
  steps: DEVIATIONS,
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

/** @type {Record<string, Colouring>} */
export const COLOURINGS = {
  deviation: byDeviation,
  share: byShare,
  flow: byFlow,
  change: byChange,
  accuracy: byAccuracy,
  feed: byFeed,
};
export const USUAL = "deviation";

/** @param {Colouring} colouring @param {number | null} value */
export const stepOf = (colouring, value) =>
  value === null ? -1 : colouring.steps.findIndex((step) => value < step.most || step.most === Infinity);
