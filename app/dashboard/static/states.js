/** Placeholders: loading, empty, failed, not allowed. */

import { NoAnswer, Problem } from "./api.js";
import { el } from "./dom.js";

/** @param {string} [what] */
export const loading = (what = "Loading") =>
  el(
    "div",
    { class: "block waiting", role: "status" },
    el("span", { class: "spinner", "aria-hidden": "true" }),
    `${what}…`,
  );

/** @param {string} title @param {...any} more */
export const empty = (title, ...more) => block("empty", "○", title, more);

/** @param {string} scope @param {string} what */
export const notAllowed = (scope, what) =>
  block("denied", "⊘", `This key may not ${what}`, [`It needs the scope ${scope}. Sign out to use another key.`]);

/** @param {unknown} problem @param {(() => void) | null} [again] */
export function failed(problem, again = null) {
  const button = again && el("button", { type: "button", on: { click: again } }, "Try again");
  if (problem instanceof Problem) {
    const known = problem.requestId ? el("small", {}, `Request ${problem.requestId}, as in the service's log.`) : null;
    return block("failure", "!", problem.title, [problem.message, known, button]);
  }
  if (problem instanceof NoAnswer) {
    return block("failure", "!", "The service does not answer", ["This page tries again by itself.", button]);
  }
  console.error(problem);
  return block("failure", "!", "This could not be shown", [String(problem), button]);
}

function block(kind, sign, title, more) {
  const lines = more.filter(Boolean).map((line) => (line instanceof Node ? line : el("p", {}, line)));
  return el(
    "div",
    { class: `block ${kind}`, role: kind === "failure" ? "alert" : null },
    el("span", { class: "sign", "aria-hidden": "true" }, sign),
    el("p", { class: "title" }, title),
    ...lines,
  );
}
