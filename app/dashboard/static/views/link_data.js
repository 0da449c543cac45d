/** One link's counts: a calendar of their completeness, and the verdicts on its detector. */

import { calendar } from "../charts/calendar.js";
import { select } from "../controls.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { age, dayTime, many, zoneName } from "../formats.js";
import { addressOf, note } from "../router.js";
import { empty, failed, loading } from "../states.js";

const SPANS = [
  [28, "4 weeks"],
  [91, "3 months"],
  [366, "1 year"],
];
const LOOK_SECONDS = 20;
const STATES = {
  ok: "The detector is sound",
  suspect: "The detector is suspect",
  stale: "The feed is stale",
  silent: "No count ever came",
};

/** @param {import("../main.js").Page} page @param {string} id @param {import("../router.js").Place} place */
export function linkDataView(page, id, place) {
  const { api, live } = page;
  const path = `v1/links/${encodeURIComponent(id)}`;
  let days = SPANS.map(([n]) => n).includes(Number(place.query.get("days"))) ? Number(place.query.get("days")) : 28;
  const heading = el("h1", { tabindex: "-1" }, id);
  const summary = el("p", { class: "summary" });
  const body = el("div", {}, loading("Reading the counts"));
  const root = el(
    "div",
    { class: "link-data" },
    el("nav", { class: "crumbs", "aria-label": "Where this is" }, el("a", { href: "#/data" }, "Data"), " / "),
    el("div", { class: "view-head" }, heading, summary),
    body,
  );
  let health = { days: [], verdicts: [] };
  let isClosed = false;
  let isShown = false;
  let shown = "";
  let lookedAt = 0;
  const month = el("div");
  const verdicts = el("div");
  const panels = el(
    "div",
    { class: "two-panels uneven" },
    panel(
      {
        title: "Completeness by day",
        tools: select("days", "Span", SPANS, days, (value) => {
          days = Number(value);
          note(["data", id], { days: days === 28 ? null : days });
          look();
        }),
        table: () => ({
          name: `${id} completeness`,
          columns: ["day", "expected", "observed", "suspect", "filled", "missing"],
          rows: health.days.map((day) => [day.day, day.expected, day.observed, day.suspect, day.imputed, day.missing]),
        }),
      },
      month,
    ),
    panel(
      {
        title: "Verdicts",
        note: "on the counts of the span",
        table: () => ({
          name: `${id} verdicts`,
          columns: ["verdict", "reason", "from", "to", "slots"],
          rows: health.verdicts.map((one) => [one.name, one.reason, one.from, one.to, one.slots]),
        }),
      },
      verdicts,
    ),
  );

  const look = async () => {
    lookedAt = Date.now();
    try {
      const [link, fresh] = await Promise.all([api.get(path), api.get(`${path}/health?days=${days}`)]);
      if (isClosed) return;
      health = fresh;
      heading.textContent = link.name;
      document.title = `${link.name} · Data · Flowcast`;
      put(
        summary,
        [
          `${STATES[health.state]}`,
          health.newest_slot &&
            `newest count ${dayTime(health.newest_slot, link.zone)}, ${age(health.data_age_seconds)} old`,
          `days by ${zoneName(link.zone, health.newest_slot ?? Date.now())}`,
        ]
          .filter(Boolean)
          .join(" · "),
        " · ",
        el("a", { href: addressOf(["links", id]) }, "Forecasts of this link"),
      );
      const now = JSON.stringify([health.days, health.verdicts]);
      if (now !== shown) {
        shown = now;
        put(month, health.days.length ? calendar(health.days) : empty("No count ever came"));
        put(
          verdicts,
          health.verdicts.length
            ? verdictList(health.verdicts, link.zone)
            : empty("Nothing is wrong", "Neither dead nor stuck nor impossible counts were found."),
        );
      }
      if (!isShown) put(body, panels);
      isShown = true;
    } catch (problem) {
      if (!isShown && !isClosed) put(body, failed(problem, look));
    }
  };
  const onNews = () => Date.now() - lookedAt > LOOK_SECONDS * 1000 && look();
  live.addEventListener("news", onNews);
  look();
  return {
    root,
    heading,
    title: `${id} · Data`,
    close: () => {
      isClosed = true;
      live.removeEventListener("news", onNews);
    },
  };
}

const verdictList = (verdicts, zone) =>
  el(
    "ol",
    { class: "verdicts" },
    ...[...verdicts]
      .reverse()
      .map((one) =>
        el(
          "li",
          {},
          el("span", { class: "badge level-2" }, one.name.replace("_", " ")),
          el("p", {}, one.reason),
          el(
            "p",
            { class: "note" },
            `${dayTime(one.from, zone)} to ${dayTime(one.to, zone)}, ${many(one.slots, "slot")}`,
          ),
        ),
      ),
  );
