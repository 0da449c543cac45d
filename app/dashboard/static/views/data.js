/** The counts of all links: completeness, verdicts on detectors, and import of files. */

import { DataTable } from "../data_table.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { age, dayTime, NOTHING, percent } from "../formats.js";
import { addressOf } from "../router.js";
import { empty, loading, notAllowed } from "../states.js";
import { importPanel } from "./import_panel.js";

const ORDER = { silent: 0, stale: 1, suspect: 2, ok: 3 };
const WORDS = { ok: "sound", suspect: "suspect", stale: "stale", silent: "silent" };

/** @param {import("../main.js").Page} page */
export function dataView(page) {
  const { city, session } = page;
  const heading = el("h1", { tabindex: "-1" }, "Data");
  const summary = el("p", { class: "summary" });
  const table = new DataTable({
    name: "detectors",
    id: (row) => row.id,
    columns: columns(city),
    sort: { name: "state", down: false },
  });
  const place = el(
    "div",
    {},
    session.may("read") ? loading("Reading the detectors") : notAllowed("read", "see counts"),
  );
  const root = el(
    "div",
    { class: "data-view" },
    el("div", { class: "view-head" }, heading, summary),
    el(
      "div",
      { class: "two-panels" },
      session.may("ingest") &&
        importPanel(page, () => {
          city.linksDue = city.figuresDue = 0;
          city.refresh().catch(() => {});
        }),
      panel(
        {
          title: "Detectors",
          note: "verdicts on the last 14 days of counts",
          kind: session.may("ingest") ? "" : "wide",
          table: () => table.csv(),
        },
        place,
      ),
    ),
  );
  const show = () => {
    if (!city.loaded) return;
    if (!city.rows.length) {
      put(place, empty("There are no links yet"));
      summary.textContent = "";
      return;
    }
    const n = (state) => city.rows.filter((row) => row.health?.state === state).length;
    summary.textContent = city.health.size
      ? `${city.rows.length} links: ${n("ok")} sound, ${n("suspect")} suspect, ${n("stale")} stale, ${n("silent")} silent`
      : "";
    table.setRows(city.rows);
    if (!table.element.isConnected) put(place, table.element);
  };
  city.addEventListener("change", show);
  show();
  return { root, heading, title: "Data", close: () => city.removeEventListener("change", show) };
}

function columns(city) {
  return [
    {
      name: "link",
      label: "Link",
      value: (row) => row.id,
      text: (row) => `${row.id} ${row.link.name}`,
      cell: (row) =>
        el(
          "a",
          { href: addressOf(["data", row.id]) },
          el("span", { class: "id" }, row.id),
          row.link.name !== row.id && el("span", { class: "name" }, row.link.name),
        ),
    },
    {
      name: "state",
      label: "Detector",
      value: (row) => (row.health ? ORDER[row.health.state] : null),
      text: (row) => row.health?.state ?? "…",
      cell: (row) => (row.health ? el("span", { class: `state ${row.health.state}` }, WORDS[row.health.state]) : "…"),
    },
    {
      name: "verdicts",
      label: "Verdicts",
      value: (row) => row.health?.verdicts.join(", ") || null,
      text: (row) => row.health?.verdicts.join(", ") || NOTHING,
    },
    {
      name: "completeness",
      label: "Last 24 h",
      title: "Share of slots that have a count",
      numeric: true,
      value: (row) => row.health?.completeness ?? null,
      text: (row) => percent(row.health?.completeness),
    },
    {
      name: "feed_age_seconds",
      label: "Feed age",
      numeric: true,
      downFirst: true,
      value: (row) => row.health?.data_age_seconds ?? null,
      text: (row) => age(row.health?.data_age_seconds),
    },
    {
      name: "newest_slot",
      label: "Newest slot",
      value: (row) => row.health?.newest_slot ?? null,
      text: (row) => (row.health?.newest_slot ? dayTime(row.health.newest_slot, city.zoneOf(row.id)) : NOTHING),
    },
  ];
}
