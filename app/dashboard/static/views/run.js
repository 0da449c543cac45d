/** One retrain run: its progress, candidates against active models on the same held-out slots, accept or refuse. */

import { DataTable } from "../data_table.js";
import { confirm } from "../dialog.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { age, dayTime, number, ownZone, percent, zoneName } from "../formats.js";
import { notify } from "../notices.js";
import { failed, loading } from "../states.js";
import { activateVersion } from "./link_models.js";
import { took, whatItTrains } from "./retrain.js";
import { accept, canAccept, gain, runColumns, versionBefore } from "./run_table.js";

const OVER = ["succeeded", "failed", "cancelled"];
const AGAIN_SECONDS = 3;

/** @param {any} stage */
const timeLeft = (stage) =>
  stage?.estimated_seconds_left > 0 ? `, about ${age(stage.estimated_seconds_left)} left` : "";

/** @param {import("../main.js").Page} page @param {string} id */
export function runView(page, id) {
  const { api, city } = page;
  const path = `v1/admin/retrain/${encodeURIComponent(id)}`;
  const stopped = new AbortController();
  const heading = el("h1", { tabindex: "-1" }, `Run ${id}`);
  const summary = el("p", { class: "summary" });
  const body = el("div", {}, loading("Reading the run"));
  const cancel = el("button", { type: "button", hidden: true, on: { click: () => cancelIt() } }, "Cancel the run");
  const bar = el("progress", { "aria-label": "Progress of the run" });
  const progressNote = el("p", { class: "note", role: "status" });
  let run = null;
  let isShown = false;
  const activeVersion = (link) => city.row(link.link_id)?.forecast?.model_version ?? null;
  const acceptAll = el("button", { type: "button", hidden: true, on: { click: () => acceptBetter() } });
  const table = new DataTable({
    name: `run ${id} link by link`,
    id: (one) => one.link_id,
    sort: { name: "link", down: false },
    columns: runColumns(city, activeVersion, (link, act) => decide(link, act)),
  });
  const root = el(
    "div",
    { class: "run" },
    el("nav", { class: "crumbs", "aria-label": "Where this is" }, el("a", { href: "#/retrain" }, "Retrain"), " / "),
    el("div", { class: "view-head" }, heading, el("div", { class: "acts" }, acceptAll, cancel), summary),
    body,
  );
  const panels = panel(
    {
      title: "Link by link",
      note: "candidate and active on the same held-out slots",
      kind: "wide",
      table: () => table.csv(),
    },
    bar,
    progressNote,
    table.element,
  );

  const show = (fresh) => {
    run = fresh;
    const { progress } = run;
    const isOver = OVER.includes(run.state);
    const done = progress.done + progress.failed + progress.cancelled;
    summary.textContent = [
      run.state,
      whatItTrains(run),
      `activate ${run.activate.replace("_", " ")}`,
      run.started_at && `took ${took(run)}`,
      `requested ${dayTime(run.requested_at, ownZone())} (${zoneName(ownZone())}) by ${run.occasion ?? run.requested_by}`,
      run.detail,
    ]
      .filter(Boolean)
      .join(" · ");
    const learning = run.stage?.name === "network" ? run.stage : null;
    bar.max = learning ? 1 : progress.total;
    bar.value = learning ? learning.share : done;
    progressNote.textContent = isOver
      ? `${progress.done} of ${progress.total} links trained${progress.failed ? `, ${progress.failed} failed` : ""}.`
      : run.state === "queued"
        ? "Waiting for a worker."
        : learning
          ? `The network is trained: ${percent(learning.share)} done${timeLeft(learning)}.`
          : `${done} of ${progress.total} links done, ${progress.training} in training${timeLeft(run.stage)}.`;
    cancel.hidden = isOver || run.cancel_requested;
    showDecisions();
    if (!isShown) put(body, panels);
    isShown = true;
  };
  const showDecisions = () => {
    if (!run) return;
    table.setRows([...run.links]);
    const n = better().length;
    acceptAll.hidden = n < 2;
    acceptAll.textContent = `Accept all ${n} that are better`;
  };
  const better = () => run.links.filter((link) => canAccept(link, activeVersion(link)) && gain(link) > 0);

  const acceptBetter = async () => {
    const links = better();
    const answer = await confirm({
      title: `Activate ${links.length} candidates?`,
      act: "Accept",
      reason: true,
      text: "Their RMSE is below that of the active model on the same held-out slots.",
    });
    if (!answer) return;
    let done = 0;
    for (const link of links) {
      try {
        await accept(api, link, answer.reason || `accepted in run ${id}`);
        done += 1;
      } catch (problem) {
        notify(`${link.link_id}: ${problem.message}`, "bad");
      }
    }
    notify(`${done} candidates are active.`);
    await city.refresh().catch(() => {});
  };

  const decide = async (link, act) => {
    const answer = await confirm({
      title:
        act === "Accept"
          ? `Activate version ${link.version} of ${link.link_id}?`
          : `Refuse version ${link.version} of ${link.link_id}?`,
      act,
      reason: true,
      text:
        act === "Accept"
          ? `On the held-out slots its RMSE is ${number(link.figures?.candidate?.rmse, 1)}, ` +
            `that of the active model ${number(link.figures?.active?.rmse, 1)}.`
          : "The version that was active before forecasts again; the candidate stays in the registry.",
    });
    if (!answer) return;
    try {
      if (act === "Accept") {
        await accept(api, link, answer.reason || `accepted in run ${id}`);
        notify(`The candidates of ${link.link_id} are active.`);
      } else {
        const version = await versionBefore(api, link);
        await activateVersion(api, link.link_id, version, answer.reason || `refused in run ${id}`);
        notify(`Version ${version} of ${link.link_id} is active.`);
      }
    } catch (problem) {
      notify(`${link.link_id} stays as it was: ${problem.message}`, "bad");
    }
    await city.refresh().catch(() => {});
  };

  const cancelIt = async () => {
    if (
      !(await confirm({
        title: `Cancel run ${id}?`,
        text: "Links under way are dropped; what was activated stays.",
        act: "Cancel the run",
      }))
    )
      return;
    try {
      show(await api.send("DELETE", path));
    } catch (problem) {
      notify(`The run continues: ${problem.message}`, "bad");
    }
  };

  /** Watch until it is over: one stream, because every admin call is recorded. */
  const watch = async () => {
    while (!stopped.signal.aborted && !(run && OVER.includes(run.state))) {
      try {
        await api.stream(path, (name, data) => name === "run" && show(data), stopped.signal);
      } catch (problem) {
        if (stopped.signal.aborted) return;
        if (!isShown) put(body, failed(problem));
        if (problem.status === 404 || problem.status === 403 || problem.status === 422) return;
      }
      if (run && OVER.includes(run.state)) break;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_SECONDS * 1000));
    }
    city.refresh().catch(() => {});
  };
  city.addEventListener("change", showDecisions);
  watch();
  return {
    root,
    heading,
    title: `Run ${id}`,
    close: () => {
      stopped.abort();
      city.removeEventListener("change", showDecisions);
    },
  };
}
