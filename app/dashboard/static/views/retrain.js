/** Retraining: the form, and the outcomes of earlier runs. */

import { readChoices } from "../choices.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { age, fullTime, NOTHING, ownZone, zoneName } from "../formats.js";
import { addressOf } from "../router.js";
import { empty, failed, loading } from "../states.js";
import { runForm } from "./run_form.js";

/** @param {import("../main.js").Page} page @param {import("../router.js").Place} place */
export function retrainView(page, place) {
  const { api, city } = page;
  const heading = el("h1", { tabindex: "-1" }, "Retrain");
  const form = el("div", {}, loading());
  const past = el("div", {}, loading("Reading runs"));
  let runs = [];
  const zone = ownZone();
  const root = el(
    "div",
    { class: "retrain" },
    el("div", { class: "view-head" }, heading),
    el(
      "div",
      { class: "two-panels" },
      panel({ title: "New run" }, form),
      panel(
        {
          title: "Runs",
          note: `times in ${zoneName(zone)}`,
          tools: [el("button", { type: "button", class: "quiet", on: { click: () => showRuns() } }, "Look again")],
          table: () => ({
            name: "retrain runs",
            columns: [
              "run_id",
              "state",
              "algorithm",
              "refresh",
              "activate",
              "requested_by",
              "requested_at",
              "finished_at",
              "links",
              "done",
              "failed",
            ],
            rows: runs.map((run) => [
              run.run_id,
              run.state,
              run.algorithm,
              run.parameters.refresh ?? false,
              run.activate,
              run.requested_by,
              run.requested_at,
              run.finished_at,
              run.progress.total,
              run.progress.done,
              run.progress.failed,
            ]),
          }),
        },
        past,
      ),
    ),
  );

  const showRuns = async () => {
    try {
      ({ runs } = await api.get("v1/admin/retrain?limit=50"));
      put(past, runs.length ? runTable(runs, zone) : empty("No run yet", "Start one beside this."));
    } catch (problem) {
      put(past, failed(problem, showRuns));
    }
  };

  const named = new Set((place.query.get("links") ?? "").split(",").filter(Boolean));
  const showForm = async () => {
    try {
      const choices = await readChoices(api);
      put(form, runForm(page, choices, named));
    } catch (problem) {
      put(form, failed(problem, showForm));
    }
  };
  const onLinks = () => {
    if (!city.loaded) return;
    city.removeEventListener("change", onLinks);
    showForm();
  };
  city.addEventListener("change", onLinks);
  onLinks();
  showRuns();
  return { root, heading, title: "Retrain", close: () => city.removeEventListener("change", onLinks) };
}

function runTable(runs, zone) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" },
    el(
      "table",
      {},
      el("caption", { class: "visually-hidden" }, "Retrain runs, the newest first"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ...["Run", "State", "Algorithm", "Links", "Asked for", "Took", "By"].map((name) =>
            el("th", { scope: "col" }, name),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        ...runs.map((run) =>
          el(
            "tr",
            {},
            el(
              "th",
              { scope: "row" },
              el("a", { href: addressOf(["retrain", String(run.run_id)]) }, `Run ${run.run_id}`),
            ),
            el("td", {}, el("span", { class: `state ${run.state}` }, run.state)),
            el("td", {}, whatItTrains(run)),
            el(
              "td",
              {},
              `${run.progress.done} of ${run.progress.total}${run.progress.failed ? `, ${run.progress.failed} failed` : ""}`,
            ),
            el("td", {}, fullTime(run.requested_at, zone)),
            el("td", {}, took(run)),
            el("td", {}, run.occasion ?? run.requested_by),
          ),
        ),
      ),
    ),
  );
}

/** @param {any} run */
export const whatItTrains = (run) => (run.parameters.refresh ? `${run.algorithm}, refreshed` : run.algorithm);

/** Return how long a run has taken. */
export const took = (run) =>
  run.started_at
    ? age((Date.parse(run.finished_at ?? new Date().toISOString()) - Date.parse(run.started_at)) / 1000)
    : NOTHING;
