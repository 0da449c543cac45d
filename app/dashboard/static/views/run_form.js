/** The form of a retrain run. */

import { select } from "../controls.js";
import { DataTable } from "../data_table.js";
import { el } from "../dom.js";
import { NOTHING } from "../formats.js";
import { notify } from "../notices.js";
import { addressOf } from "../router.js";
import { empty } from "../states.js";

const MODE_NAMES = { if_better: "if it is better", never: "never: I decide afterwards", always: "always" };
const OF_ONE_LINK = ["lags", "n_neighbors"]; // a network's model has neither
const PARAMETERS = [
  ["lags", "Lags", "45", 1, 2000],
  ["n_neighbors", "Neighbours", "20", 1, 500],
  ["held_out_days", "Held-out days", "7", 1, 60],
  ["days", "Days to learn from", "56", 1, 1000],
  ["max_iter", "Most steps", "25, NETWORK 10", 0, 500],
];

/** @param {import("../main.js").Page} page */
export function runForm(page, choices, named) {
  const { api, city } = page;
  if (!city.rows.length) return empty("There are no links to retrain");
  const chosen = new Set([...named].filter((id) => city.links.has(id)));
  const problem = el("p", { class: "problem", role: "alert" });
  const chosenNote = el("p", { class: "found", role: "status" });
  const update = () => {
    chosenNote.textContent = all.checked
      ? `all ${city.rows.length} links`
      : `${chosen.size} of ${city.rows.length} links chosen`;
    list.element.toggleAttribute("hidden", all.checked);
    searching.toggleAttribute("hidden", all.checked);
    start.disabled = !all.checked && chosen.size === 0;
  };
  const all = el("input", {
    type: "radio",
    name: "which",
    id: "which-all",
    checked: chosen.size === 0,
    on: { change: () => update() },
  });
  const some = el("input", {
    type: "radio",
    name: "which",
    id: "which-some",
    checked: chosen.size > 0,
    on: { change: () => update() },
  });
  const list = new DataTable({
    name: "links to choose",
    id: (row) => row.id,
    sort: { name: "link", down: false },
    columns: [
      {
        name: "link",
        label: "Link",
        value: (row) => row.id,
        text: (row) => row.id,
        cell: (row) => {
          const box = el("input", {
            type: "checkbox",
            checked: chosen.has(row.id),
            on: {
              change: () => {
                chosen[box.checked ? "add" : "delete"](row.id);
                update();
              },
            },
          });
          return el(
            "label",
            { class: "choice" },
            box,
            el("span", { class: "id" }, row.id),
            el("span", { class: "name" }, row.link.name),
          );
        },
      },
      {
        name: "geh",
        label: "GEH<5",
        numeric: true,
        value: (row) => row.accuracy?.geh_pass_share ?? null,
        text: (row) =>
          row.accuracy?.geh_pass_share === null || !row.accuracy
            ? NOTHING
            : `${Math.round(100 * row.accuracy.geh_pass_share)} %`,
      },
      { name: "method", label: "Method", value: (row) => row.forecast?.method ?? null },
    ],
  });
  const search = el("input", {
    type: "search",
    id: "search-links",
    autocomplete: "off",
    placeholder: "Link or name",
    on: {
      input: () => {
        const text = search.value.toLowerCase();
        list.setRows(
          city.rows.filter((row) => `${row.id} ${row.link.name}`.toLowerCase().includes(text)),
          true,
        );
      },
    },
  });
  const searching = el("div", { class: "controls" }, el("label", { for: "search-links" }, "Search"), search);
  const refresh = el("input", { type: "checkbox", id: "refresh", on: { change: () => fit() } });
  const refreshing = el(
    "label",
    { class: "choice" },
    refresh,
    "Refresh only: new counts and links join, nothing is learnt anew; active at once, unless that is never",
  );
  const isRefresh = () => values.algorithm === "NETWORK" && refresh.checked;
  /** Leave out values that would be refused. */
  const fit = () => {
    refreshing.hidden = values.algorithm !== "NETWORK";
    for (const [name, label, input] of inputs) {
      const isOut = isRefresh() ? name !== "days" : values.algorithm === "NETWORK" && OF_ONE_LINK.includes(name);
      label.hidden = input.hidden = input.disabled = isOut;
    }
  };
  const values = { algorithm: choices.algorithm, activate: choices.modes[0] };
  const inputs = PARAMETERS.map(([name, label, usual, least, most]) => [
    name,
    el("label", { for: `p-${name}` }, label),
    el("input", { id: `p-${name}`, type: "number", min: least, max: most, placeholder: usual }),
  ]);
  const start = el("button", { type: "submit", class: "primary" }, "Start the run");
  const submit = async (event) => {
    event.preventDefault();
    start.disabled = true;
    problem.textContent = "";
    const given = inputs
      .filter(([, , input]) => input.value !== "" && !input.disabled)
      .map(([name, , input]) => [name, Number(input.value)]);
    try {
      const run = await api.send("POST", "v1/admin/retrain", {
        links: all.checked ? "all" : [...chosen],
        algorithm: values.algorithm,
        activate: values.activate,
        ...(isRefresh() ? { refresh: true } : {}),
        ...(given.length ? { parameters: Object.fromEntries(given) } : {}),
      });
      const left = Object.keys(run.already_running).length;
      notify(`Run ${run.run_id} is queued${left ? `; ${left} links are in another run` : ""}.`);
      location.hash = addressOf(["retrain", String(run.run_id)]);
    } catch (refused) {
      problem.textContent = refused.message;
      start.disabled = false;
    }
  };
  const form = el(
    "form",
    { class: "run-form", on: { submit } },
    el(
      "fieldset",
      {},
      el("legend", {}, "Links"),
      el("label", { class: "choice" }, all, "All links"),
      el("label", { class: "choice" }, some, "Some links"),
      chosenNote,
      searching,
      list.element,
    ),
    el(
      "div",
      { class: "fields" },
      ...select(
        "algorithm",
        "Algorithm",
        choices.algorithms.map((name) => [name, name]),
        values.algorithm,
        (value) => {
          values.algorithm = value;
          fit();
        },
      ),
      ...select(
        "activate",
        "Activate a candidate",
        choices.modes.map((mode) => [mode, MODE_NAMES[mode] ?? mode]),
        values.activate,
        (value) => {
          values.activate = value;
        },
      ),
    ),
    refreshing,
    el(
      "details",
      {},
      el("summary", {}, "Parameters"),
      el(
        "div",
        { class: "fields" },
        ...inputs.flatMap(([, label, input]) => [label, input]),
      ),
    ),
    el("div", { class: "acts" }, start),
    problem,
  );
  list.setRows(city.rows);
  fit();
  update();
  return form;
}
