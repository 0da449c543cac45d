/** Reasons why a link needs attention, and how urgent they are. */

import { age, percent } from "./formats.js";

/** Kinds, the most serious first: each has a word and a sign, because colour alone is not enough, and what shows it. */
export const KINDS = {
  dead: { label: "Dead feed", sign: "✕", level: 3, shownBy: "health" },
  failed: { label: "No forecast", sign: "!", level: 3, shownBy: "forecasts" },
  suspect: { label: "Suspect detector", sign: "?", level: 2, shownBy: "health" },
  degraded: { label: "Degraded method", sign: "▽", level: 2, shownBy: "forecasts" },
  poor: { label: "Poor accuracy", sign: "≠", level: 1, shownBy: "accuracy" },
};

const LEAST_SCORED = 8; // slots; fewer are too few to judge accuracy

/**
 * @param {Pick<import("./city.js").Row, "status" | "forecast" | "accuracy" | "health">} row
 * @returns {{kind: keyof typeof KINDS, reason: string}[]} the most serious first
 */
export function attentionOf(row) {
  const found = [];
  const { health, accuracy } = row;
  if (health?.state === "silent" || row.status === "no_counts")
    found.push({ kind: "dead", reason: "no count has been received" });
  else if (health?.state === "stale")
    found.push({ kind: "dead", reason: `no count for ${age(health.data_age_seconds)}` });
  if (row.status === "failed") found.push({ kind: "failed", reason: "the forecast failed; the log has the reason" });
  if (health?.state === "suspect")
    found.push({ kind: "suspect", reason: `${health.verdicts.join(", ") || "suspect"} counts in the last day` });
  if (row.status === "degraded" && !found.some((one) => one.kind === "dead")) {
    found.push({ kind: "degraded", reason: row.forecast?.degraded_reason ?? `forecast by ${row.forecast?.method}` });
  }
  if (accuracy && accuracy.n_used >= LEAST_SCORED && accuracy.passes_geh === false) {
    found.push({ kind: "poor", reason: `GEH below 5 in only ${percent(accuracy.geh_pass_share)} of slots` });
  }
  return found;
}

/** Return how urgent a link is: by its most serious kind, then by how many there are. */
export const urgency = (row) =>
  row.attention.length ? 10 * KINDS[row.attention[0].kind].level + row.attention.length : 0;
