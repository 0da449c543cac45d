/** One link: what was counted, what is expected, how accurate that was, and why. */

import { attentionOf, KINDS } from "../attention.js";
import { select } from "../controls.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { age, dayTime, number, zoneName } from "../formats.js";
import { addressOf, note } from "../router.js";
import { empty, failed, loading } from "../states.js";
import { LinkAccuracy } from "./link_accuracy.js";
import { LinkChart } from "./link_chart.js";
import { LinkContext } from "./link_context.js";
import { LinkExperts } from "./link_experts.js";
import { LinkMetric } from "./link_metric.js";
import { LinkModels } from "./link_models.js";
import { LinkReasons } from "./link_reasons.js";

const DAY = 86_400_000;
const SPANS = {
  "24h": ["last 24 hours", DAY],
  "3d": ["last 3 days", 3 * DAY],
  "7d": ["last 7 days", 7 * DAY],
  "28d": ["last 28 days", 28 * DAY],
};
const HORIZONS = [1, 2, 3, 4];
const LEAST_SECONDS = 2; // between two refreshes, however fast counts come

/** Return the trained model that the explanation is of: among experts the one with the largest weight. */
function explainedModel({ explanation, forecasts: [next] }) {
  const expert = explanation?.experts?.find((one) => one.explanation);
  return expert
    ? { name: expert.name, version: expert.model_version, expected: expert.expected_count }
    : { name: next.method, version: next.model_version, expected: next.expected_count };
}

/** @param {import("../main.js").Page} page @param {string} id @param {import("../router.js").Place} place */
export function linkView(page, id, place) {
  const { api, live } = page;
  const path = `v1/links/${encodeURIComponent(id)}`;
  const asked = {
    span: Object.hasOwn(SPANS, place.query.get("span")) ? place.query.get("span") : "24h",
    horizon: HORIZONS.includes(Number(place.query.get("horizon"))) ? Number(place.query.get("horizon")) : 1,
  };
  const noteIt = () =>
    note(["links", id], {
      span: asked.span === "24h" ? null : asked.span,
      horizon: asked.horizon === 1 ? null : asked.horizon,
    });
  const heading = el("h1", { tabindex: "-1" }, id);
  const facts = el("p", { class: "summary" });
  const badges = el("ul", { class: "badges" });
  const body = el("div", {}, loading("Reading the link"));
  const root = el(
    "div",
    { class: "link" },
    el("nav", { class: "crumbs", "aria-label": "Where this is" }, el("a", { href: "#/network" }, "Network"), " / "),
    el("div", { class: "view-head" }, heading, badges, facts),
    body,
  );

  const chart = new LinkChart(id);
  const accuracy = new LinkAccuracy(id);
  const experts = new LinkExperts(id);
  const context = new LinkContext(id);
  const reasons = new LinkReasons(api, id);
  const metric = new LinkMetric(api, id);
  const models = new LinkModels(page, id, () => look(true));
  const controls = el(
    "div",
    { class: "controls" },
    ...select(
      "horizon",
      "Horizon",
      HORIZONS.map((h) => [h, h === 1 ? "1 slot ahead" : `${h} slots ahead`]),
      asked.horizon,
      (value) => {
        asked.horizon = Number(value);
        noteIt();
        look(true);
      },
    ),
    ...select(
      "span",
      "Span",
      Object.entries(SPANS).map(([name, [label]]) => [name, label]),
      asked.span,
      (value) => {
        asked.span = value;
        noteIt();
        look(true);
      },
    ),
    el("a", { class: "aside", href: addressOf(["data", id]) }, "Counts and detector"),
  );
  const zoneNote = el("span", { class: "zone" });
  const panels = el(
    "div",
    { class: "link-panels" },
    panel(
      { title: "Counts and forecasts", kind: "wide", note: zoneNote, table: () => chart.table() },
      controls,
      chart.element,
    ),
    accuracy.element,
    experts.element,
    reasons.element,
    context.element,
    metric.element,
    accuracy.byHorizon,
    models.element,
  );

  let link = null;
  let isShown = false;
  let isClosed = false;
  let lookedAt = 0;
  let seen = "";
  let under = null;
  let planned = null;

  /** Read what changed; with `all`, read everything. */
  const look = (all = false) => {
    const next = (under ?? Promise.resolve()).then(() => (isClosed ? null : readAndShow(all)));
    under = next.catch((problem) => {
      if (!isShown || problem.status === 404)
        put(
          body,
          failed(problem, () => look(true)),
        );
    });
    return under;
  };

  const readAndShow = async (all) => {
    link ??= await api.get(path);
    const health = await api.get(`${path}/health?days=2`);
    const answer = health.newest_slot === null ? null : await api.get(`${path}/forecast?horizon=4&explain=true`);
    const now = JSON.stringify(
      answer?.forecasts?.map((one) => [one.as_of_slot, one.model_version, one.method, one.issued_at]) ?? null,
    );
    if (!all && now === seen) return;
    const newestEnd = answer ? Date.parse(answer.forecasts[0].slot_start) : null;
    const zone = link.zone;
    const from = newestEnd === null ? null : new Date(newestEnd - SPANS[asked.span][1]).toISOString();
    const asks =
      newestEnd === null
        ? []
        : [
            api.getPages(`${path}/counts?from=${from}&to=${new Date(newestEnd).toISOString()}&limit=10000`, "counts"),
            api.getPages(`${path}/forecasts?from=${from}&horizon=${asked.horizon}&limit=10000`, "forecasts"),
            api.get(
              `${path}/accuracy?window=${asked.span}&horizon=${asked.horizon}&by=${["24h", "3d"].includes(asked.span) ? "hour" : "day"}`,
            ),
            api.get(`${path}/accuracy?window=${asked.span}&by=horizon`),
            answer.explanation?.experts
              ? api.getPages(`${path}/experts?from=${new Date(newestEnd - DAY).toISOString()}&limit=10000`, "slots")
              : { slots: [] },
          ];
    const [registry, counts, past, figures, byHorizon, weights] = await Promise.all([
      api.getPages(`${path}/models?limit=100`, "models"),
      ...asks,
    ]);
    if (isClosed) return;
    seen = now;
    showFacts(answer, health, registry.choice);
    if (!isShown)
      put(
        body,
        answer
          ? panels
          : el(
              "div",
              {},
              empty(
                "No counts yet",
                "Send counts over REST, or import a file.",
                el("a", { class: "button", href: addressOf(["data"]) }, "To the data"),
              ),
              models.element,
            ),
      );
    isShown = answer !== null;
    zoneNote.textContent = `times in ${zoneName(zone, newestEnd ?? Date.now())}`;
    models.show(registry, zone);
    if (!answer) return;
    const known = { forecasts: answer.forecasts, counts: counts.counts, past: past.forecasts };
    const [label, length] = SPANS[asked.span];
    chart.show(link, known, { horizon: asked.horizon, length, label });
    accuracy.show(figures, byHorizon, zone, asked);
    experts.show(answer, weights.slots, link);
    const explained = explainedModel(answer);
    context.show(answer, link, explained);
    const active = registry.models.find((one) => one.version === explained.version) ?? null;
    await Promise.all([reasons.show(answer, link, explained), metric.show(answer, link, active)]);
  };

  const showFacts = (answer, health, choice) => {
    heading.textContent = link.name;
    document.title = `${link.name} · Flowcast`;
    const method = answer?.forecasts[0];
    const row = {
      status: !answer ? "no_counts" : method.degraded_reason ? "degraded" : "ok",
      forecast: method,
      accuracy: page.city.row(id)?.accuracy ?? null,
      health: { ...health, verdicts: [...new Set(health.verdicts.map((one) => one.name))] },
    };
    put(
      badges,
      ...attentionOf(row).map(({ kind, reason }) =>
        el(
          "li",
          { class: `badge level-${KINDS[kind].level}` },
          el("span", { "aria-hidden": "true" }, `${KINDS[kind].sign} `),
          `${KINDS[kind].label}: ${reason}`,
        ),
      ),
    );
    facts.textContent = [
      `Link ${id}`,
      choice === "profile" && "profile chosen: it won on held-out days",
      zoneName(link.zone, health.newest_slot ?? Date.now()),
      `slots of ${link.slot_minutes} min`,
      link.capacity && `capacity ${number(link.capacity)} vehicles per hour`,
      health.newest_slot &&
        `newest count ${dayTime(health.newest_slot, link.zone)}, ${age(health.data_age_seconds)} old`,
    ]
      .filter(Boolean)
      .join(" · ");
  };

  const onNews = () => {
    planned ??= setTimeout(
      () => {
        planned = null;
        lookedAt = Date.now();
        look();
      },
      Math.max(0, lookedAt + LEAST_SECONDS * 1000 - Date.now()),
    );
  };
  live.addEventListener("news", onNews);
  look(true);
  return {
    root,
    heading,
    title: id,
    close: () => {
      isClosed = true;
      clearTimeout(planned);
      live.removeEventListener("news", onNews);
    },
  };
}
