/** A panel with a heading and a figure, also as an accessible table and as CSV. */

import { csvButton } from "./csv.js";
import { el, put } from "./dom.js";
import { NOTHING } from "./formats.js";

const MOST_ROWS = 200;
let made = 0;

/**
 * @param {{title: string, note?: any, tools?: any[], table?: () => import("./csv.js").Table, level?: number, kind?: string}} about
 * @param {...any} content
 */
export function panel({ title, note, tools = [], table, level = 2, kind = "" }, ...content) {
  const id = `panel-${++made}`;
  return el(
    "section",
    { class: `panel ${kind}`, "aria-labelledby": id },
    el(
      "header",
      {},
      el(`h${level}`, { id }, title),
      note && el("span", { class: "note" }, note),
      el("div", { class: "tools" }, ...tools, table && csvButton(table)),
    ),
    ...content,
  );
}

/**
 * The rows of a figure as a table, filled when it is opened.
 * @param {() => import("./csv.js").Table} table
 */
export function asTable(table) {
  const holder = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table().name });
  const show = () => put(holder, written(table()));
  const details = el(
    "details",
    { class: "as-table", on: { toggle: () => details.open && show() } },
    el("summary", {}, "As a table"),
    holder,
  );
  return { element: details, refresh: () => details.open && show() };
}

function written({ name, columns, rows }) {
  const shown = rows.slice(-MOST_ROWS);
  const left = rows.length - shown.length;
  return el(
    "table",
    {},
    el("caption", {}, left ? `${name}, the last ${shown.length} of ${rows.length} rows` : name),
    el("thead", {}, el("tr", {}, ...columns.map((column) => el("th", { scope: "col" }, column)))),
    el("tbody", {}, ...shown.map((row) => el("tr", {}, ...row.map((value) => el("td", {}, shownValue(value)))))),
  );
}

const shownValue = (value) =>
  value === null || value === undefined
    ? NOTHING
    : typeof value === "number" && !Number.isInteger(value)
      ? value.toFixed(3)
      : String(value);
