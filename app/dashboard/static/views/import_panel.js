/** Import of a file of counts: first a dry run, then the import. */

import { readChoices } from "../choices.js";
import { select } from "../controls.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { fullTime, many, number, percent, size } from "../formats.js";
import { failed, loading } from "../states.js";

const FIGURES = [
  ["stored", "new counts"],
  ["replaced", "corrections"],
  ["unchanged", "already there"],
  ["repeated", "replaced by a later one in the file"],
  ["gaps", "gaps"],
  ["refused", "refused"],
  ["suspect", "marked suspect"],
  ["imputed", "marked filled"],
];

/** @param {import("../main.js").Page} page @param {() => void} onImported */
export function importPanel(page, onImported) {
  const { api, session } = page;
  const asked = { format: "auto", zone: "", map: "", link: "", create_links: false };
  /** @type {File | null} */ let file = null;
  const report = el("div", { "aria-live": "polite" });
  const input = el("input", {
    type: "file",
    id: "file",
    class: "visually-hidden",
    on: { change: () => input.files[0] && take(input.files[0]) },
  });
  const drop = el(
    "div",
    {
      class: "drop",
      on: {
        dragover: (event) => {
          event.preventDefault();
          drop.classList.add("over");
        },
        dragleave: () => drop.classList.remove("over"),
        drop: (event) => {
          event.preventDefault();
          drop.classList.remove("over");
          if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
        },
      },
    },
    input,
    el("label", { for: "file", class: "button" }, "Choose a file"),
    el("p", {}, "or drop it here"),
    el(
      "p",
      { class: "note" },
      "CSV, JSON, SCATS, PeMS or WebTRIS, also .gz and .zip. A dry run reports what it contains; nothing is stored before you confirm.",
    ),
  );
  const layout = el(
    "span",
    { class: "inline" },
    ...select("format", "Layout", [["auto", "recognise it"]], "auto", again("format")),
  );
  const text = (name, label, placeholder) => {
    const field = el("input", {
      id: name,
      placeholder,
      autocomplete: "off",
      on: {
        change: () => {
          asked[name] = field.value.trim();
          retry();
        },
      },
    });
    return [el("label", { for: name }, label), field];
  };
  const create = el("input", {
    type: "checkbox",
    id: "create",
    on: {
      change: () => {
        asked.create_links = create.checked;
        retry();
      },
    },
  });
  const options = el(
    "details",
    {},
    el("summary", {}, "Options"),
    el(
      "div",
      { class: "fields" },
      layout,
      ...text("zone", "Zone of local times and new links", "as the layout has it"),
      ...text("map", "Columns", "link_id=Detector,slot_start=Time,count=Vol"),
      ...text("link", "Only link", "for a file without a link column"),
    ),
  );
  options.addEventListener(
    "toggle",
    async () => {
      try {
        const { layouts } = await readChoices(api);
        put(
          layout,
          ...select(
            "format",
            "Layout",
            layouts.map((name) => [name, name === "auto" ? "recognise it" : name]),
            asked.format,
            again("format"),
          ),
        );
      } catch {
        // Without the list, the layout is recognised.
      }
    },
    { once: true },
  );

  function again(name) {
    return (value) => {
      asked[name] = value;
      retry();
    };
  }
  const retry = () => file && take(file);
  const path = (isDry) => {
    const query = new URLSearchParams({
      format: asked.format,
      dry_run: String(isDry),
      create_links: String(asked.create_links),
    });
    for (const name of ["zone", "map", "link"]) if (asked[name]) query.set(name, asked[name]);
    return `v1/import?${query}`;
  };
  const send = async (isDry) => {
    const waiting = loading(isDry ? `Reading ${file.name} (${size(file.size)})` : `Importing ${file.name}`);
    const sent = el("progress", { max: 1, value: 0, "aria-label": "Sent" });
    put(report, waiting, sent);
    try {
      const answer = await api.upload(path(isDry), file, (share) => {
        sent.value = share;
      });
      put(report, shown(answer));
      if (!isDry) {
        file = null;
        input.value = "";
        onImported();
      }
    } catch (problem) {
      put(
        report,
        failed(problem, () => send(isDry)),
      );
    }
  };
  const take = (given) => {
    file = given;
    send(true);
  };
  const shown = (answer) => {
    const taken = answer.stored + answer.replaced;
    return el(
      "div",
      { class: `report ${answer.dry_run ? "dry" : "done"}` },
      el("h3", {}, answer.dry_run ? `${file.name}: what an import would do` : `${file.name} is imported`),
      el(
        "p",
        {},
        `${many(answer.rows, "row")} with ${many(answer.values, "value")} in the layout ${answer.format}, ${many(answer.links, "link")}` +
          (answer.first_slot
            ? `, ${fullTime(answer.first_slot, page.city.zone)} to ${fullTime(answer.last_slot, page.city.zone)} (${page.city.zone})`
            : "") +
          (answer.links_created
            ? `; ${answer.links_created} links ${answer.dry_run ? "would be" : "were"} created`
            : "") +
          ".",
      ),
      el(
        "dl",
        { class: "figures" },
        ...FIGURES.filter(([name]) => answer[name] || name === "stored" || name === "refused").flatMap(
          ([name, label]) => [el("dt", {}, label), el("dd", {}, number(answer[name]))],
        ),
      ),
      answer.notes.length > 0 && el("ul", {}, ...answer.notes.map((note) => el("li", {}, note))),
      answer.unknown_links.length > 0 && el("p", { class: "problem" }, unknown(answer.unknown_links)),
      Object.keys(answer.reasons).length > 0 &&
        el("ul", {}, ...Object.entries(answer.reasons).map(([reason, n]) => el("li", {}, `${n}: ${reason}`))),
      answer.refusals.length > 0 && refusals(answer.refusals),
      answer.dry_run &&
        el(
          "div",
          { class: "acts" },
          el(
            "button",
            {
              type: "button",
              on: {
                click: () => {
                  file = null;
                  input.value = "";
                  put(report);
                },
              },
            },
            "Leave it",
          ),
          el(
            "button",
            { type: "button", class: "primary", disabled: taken === 0, on: { click: () => send(false) } },
            `Import ${many(taken, "count")}`,
          ),
        ),
      !answer.dry_run &&
        el(
          "p",
          { class: "note" },
          `${many(answer.forecasts_issued, "link")} got a new forecast. ` +
            `${percent(answer.values ? answer.refused / answer.values : 0)} of the values were refused.`,
        ),
    );
  };
  return panel(
    { title: "Import a file" },
    drop,
    session.may("admin") && el("label", { class: "choice" }, create, "Create links that do not exist"),
    options,
    report,
  );
}

const unknown = (ids) =>
  `${many(ids.length, "link")} ${ids.length === 1 ? "does" : "do"} not exist: ${ids.slice(0, 8).join(", ")}${ids.length > 8 ? " and more" : ""}.`;

const refusals = (list) =>
  el(
    "details",
    { class: "as-table" },
    el("summary", {}, `The first ${list.length} refused`),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Refused entries" },
      el(
        "table",
        {},
        el("caption", { class: "visually-hidden" }, "Refused entries"),
        el(
          "thead",
          {},
          el("tr", {}, ...["Line", "Field", "Value", "Rule"].map((name) => el("th", { scope: "col" }, name))),
        ),
        el(
          "tbody",
          {},
          ...list.map((one) =>
            el(
              "tr",
              {},
              el("td", {}, one.line === null ? "–" : String(one.line)),
              el("td", {}, one.field),
              el("td", {}, one.value),
              el("td", { class: "wrap" }, one.reason),
            ),
          ),
        ),
      ),
    ),
  );
