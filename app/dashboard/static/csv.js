/** Figures as CSV: on the clipboard, or as a file where there is no clipboard. */

import { el } from "./dom.js";
import { notify } from "./notices.js";

/** Mark text that a spreadsheet would evaluate as a formula (numbers are safe). */
const FORMULA = /^[=+\-@\t\r]/;

/**
 * @typedef {{name: string, columns: string[], rows: any[][]}} Table
 * @param {Table} table
 */
export function asCsv(table) {
  return [table.columns, ...table.rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * A button that copies a figure.
 * @param {() => Table} table
 */
export function csvButton(table) {
  const name = table().name;
  return el(
    "button",
    { type: "button", class: "quiet", "aria-label": `Copy ${name} as CSV`, on: { click: () => copy(table()) } },
    "CSV",
  );
}

async function copy(table) {
  const text = asCsv(table);
  const rows = `${table.rows.length} ${table.rows.length === 1 ? "row" : "rows"} of ${table.name}`;
  try {
    await navigator.clipboard.writeText(text); // absent where the page came over plain HTTP
    notify(`Copied ${rows} as CSV.`);
  } catch {
    download(text, table.name);
    notify(`Saved ${rows} as a CSV file.`);
  }
}

function download(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const anchor = el("a", { href: address, download: `${name.replaceAll(/[^A-Za-z0-9]+/g, "-")}.csv` });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
