/** Completeness by day, one row per week: slots observed, suspect, imputed and missing. */

import { el, svg } from "../dom.js";
import { percent } from "../formats.js";

export const QUALITIES = [
  { name: "observed", label: "observed", field: "observed", letter: "" },
  { name: "suspect", label: "suspect", field: "suspect", letter: "S" },
  { name: "filled", label: "filled", field: "imputed", letter: "F" },
  { name: "missing", label: "missing", field: "missing", letter: "M" },
];
const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WIDTH = 100;

/** @param {{day: string, expected: number, observed: number, imputed: number, suspect: number, missing: number}[]} days */
export function calendar(days) {
  const weeks = new Map();
  for (const day of days) {
    const date = new Date(`${day.day}T00:00:00Z`);
    const weekday = (date.getUTCDay() + 6) % 7;
    const monday = new Date(date.getTime() - weekday * 86_400_000);
    const week = weeks.get(monday.getTime()) ?? { monday, days: Array(7).fill(null) };
    week.days[weekday] = { ...day, date };
    weeks.set(monday.getTime(), week);
  }
  return el(
    "div",
    { class: "calendar" },
    legend(),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Completeness by day" },
      el(
        "table",
        {},
        el("caption", { class: "visually-hidden" }, "Completeness by local day"),
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "Week of"),
            ...WEEKDAYS.map((name) => el("th", { scope: "col" }, name)),
          ),
        ),
        el(
          "tbody",
          {},
          ...[...weeks.values()]
            .reverse()
            .map((week) =>
              el(
                "tr",
                {},
                el("th", { scope: "row" }, `${week.monday.getUTCDate()} ${MONTHS[week.monday.getUTCMonth()]}`),
                ...week.days.map((day) => el("td", {}, day ? cell(day) : null)),
              ),
            ),
        ),
      ),
    ),
  );
}

function cell(day) {
  let at = 0;
  const parts = QUALITIES.map(({ name, field }) => {
    const width = (WIDTH * day[field]) / day.expected;
    const part = svg("rect", { class: `q-${name}`, x: at, y: 0, width, height: 10 });
    at += width;
    return part;
  });
  const due = day.observed + day.imputed + day.suspect + day.missing;
  const wrong = QUALITIES.slice(1).filter(({ field }) => day[field]);
  const description = [
    `${day.observed} of ${due} observed`,
    ...wrong.map(({ label, field }) => `${day[field]} ${label}`),
  ].join(", ");
  return el(
    "div",
    { class: wrong.length ? "day wrong" : "day", title: description },
    el("span", { class: "date" }, String(day.date.getUTCDate())),
    el(
      "span",
      { class: "share", "aria-hidden": "true" },
      wrong.map((one) => one.letter).join(""),
      " ",
      due ? floored(day.observed / due) : "–",
    ),
    svg("svg", { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts),
    el("span", { class: "visually-hidden" }, description),
  );
}

/** Round down, so that a day that lacks one slot never shows 100 %. */
const floored = (share) => percent(Math.floor(share * 100) / 100);

function legend() {
  return el(
    "ul",
    { class: "legend" },
    ...QUALITIES.map(({ name, label, letter }) =>
      el(
        "li",
        {},
        svg(
          "svg",
          { width: 18, height: 10, "aria-hidden": "true" },
          svg("rect", { class: `q-${name}`, width: 18, height: 10 }),
        ),
        letter ? `${label} (${letter})` : label,
      ),
    ),
  );
}
