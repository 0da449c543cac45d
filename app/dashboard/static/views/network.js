/** All links: what needs attention, the map, and the table. */

import { KINDS, urgency } from "../attention.js";
import { CityMap } from "../charts/map.js";
import { select } from "../controls.js";
import { csvButton } from "../csv.js";
import { DataTable } from "../data_table.js";
import { el, put } from "../dom.js";
import { dayTime, NOTHING, number, percent, zoneName } from "../formats.js";
import { addressOf, note } from "../router.js";
import { empty, failed, loading } from "../states.js";
import { COLOURINGS, stepOf, USUAL } from "./colouring.js";
import { networkColumns } from "./network_table.js";

const HORIZONS = [1, 2, 3, 4];

/** @param {import("../main.js").Page} page @param {import("../router.js").Place} place */
export function networkView(page, place) {
  const { city } = page;
  const asked = {
    q: place.query.get("q") ?? "",
    show: Object.hasOwn(KINDS, place.query.get("show")) ? place.query.get("show") : null,
    colour: Object.hasOwn(COLOURINGS, place.query.get("colour")) ? place.query.get("colour") : USUAL,
    horizon: HORIZONS.includes(Number(place.query.get("horizon"))) ? Number(place.query.get("horizon")) : 1,
    sort: place.query.get("sort"),
  };
  const root = el("div", { class: "network" });
  const heading = el("h1", { tabindex: "-1" }, "Network");
  const summary = el("p", { class: "summary" });
  const body = el("div", {}, loading("Reading the links"));
  root.append(el("div", { class: "view-head" }, heading, summary), body);

  const noteIt = () =>
    note(["network"], {
      q: asked.q,
      show: asked.show,
      colour: asked.colour === USUAL ? null : asked.colour,
      sort: asked.sort,
      horizon: asked.horizon === 1 ? null : asked.horizon,
    });
  const table = new DataTable({
    name: "links",
    columns: networkColumns(),
    id: (row) => row.id,
    tie: (a, b) => urgency(b) - urgency(a),
    sort: readSort(asked.sort),
    onSort: (sort) => {
      asked.sort = `${sort.down ? "-" : ""}${sort.name}`;
      noteIt();
    },
    onPoint: (row) => map.mark(row?.id ?? null),
  });
  const map = new CityMap({
    onPoint: (id) => {
      table.mark(id);
      map.mark(id);
    },
    onOpen: (id) => {
      location.hash = addressOf(["links", id]);
    },
  });
  const kinds = el("div", { class: "kinds", role: "group", "aria-label": "What needs attention" });
  const legend = el("div", { class: "map-legend" });
  const found = el("p", { class: "found", role: "status" });
  const search = el("input", {
    type: "search",
    id: "search",
    value: asked.q,
    placeholder: "Link or name",
    autocomplete: "off",
    on: {
      input: () => {
        asked.q = search.value;
        noteIt();
        showRows(true);
      },
    },
  });
  const none = empty(
    "No link is like that",
    el("button", { type: "button", on: { click: () => showAll() } }, "Show all links"),
  );
  const showAll = () => {
    asked.q = search.value = "";
    asked.show = null;
    noteIt();
    showKinds();
    showRows(true);
    search.focus();
  };
  const colour = select("colour", "Colour by", Object.entries(COLOURINGS).map(([name, { label }]) => [name, label]), asked.colour, (value) => {
    asked.colour = value;
    noteIt();
    showMap();
  });
  const horizon = select(
    "horizon",
    "Horizon",
    HORIZONS.map((h) => [h, h === 1 ? "next slot" : `${h} slots ahead`]),
    asked.horizon,
    (value) => {
      asked.horizon = Number(value);
      noteIt();
      city.look(asked.horizon).catch(() => {});
    },
  );
  const panels = el(
    "div",
    { class: "network-panels" },
    el(
      "section",
      { class: "panel map-panel", "aria-label": "Map" },
      el("div", { class: "controls" }, ...colour, ...horizon),
      map.element,
      legend,
    ),
    el(
      "section",
      { class: "panel", "aria-label": "Links" },
      el(
        "div",
        { class: "controls" },
        el("label", { for: "search" }, "Search"),
        search,
        found,
        el(
          "div",
          { class: "tools" },
          csvButton(() => table.csv()),
        ),
      ),
      table.element,
      none,
    ),
  );

  const matching = () => {
    const words = asked.q.toLowerCase().split(/\s+/).filter(Boolean);
    return city.rows.filter((row) => {
      if (asked.show && !row.attention.some((one) => one.kind === asked.show)) return false;
      const text = `${row.id} ${row.link.name}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  };
  const showRows = (fromTop = false) => {
    const rows = matching();
    table.setRows(rows, fromTop);
    none.hidden = rows.length > 0;
    table.element.hidden = rows.length === 0;
    const text =
      rows.length === city.rows.length ? `${rows.length} links` : `${rows.length} of ${city.rows.length} links`;
    if (found.textContent !== text) found.textContent = text; // or it would be read out again
  };
  const showMap = () => {
    const colouring = COLOURINGS[asked.colour];
    map.show(
      city.rows,
      (row) => look(row, colouring),
      `Map of ${city.rows.length} links, coloured by ${colouring.label.toLowerCase()}; the table has the same figures`,
    );
    put(
      legend,
      el(
        "ul",
        { class: "legend" },
        ...colouring.steps.map((step, i) =>
          el(
            "li",
            { class: `key ${colouring.scale}-${i} w${step.width}` },
            el("span", { class: "swatch", "aria-hidden": "true" }),
            step.label,
          ),
        ),
        el("li", { class: "key dead" }, el("span", { class: "swatch", "aria-hidden": "true" }), "dead feed"),
      ),
      el("span", { class: "note" }, colouring.note),
    );
  };
  const showKinds = () => {
    const focused = [...kinds.children].indexOf(document.activeElement);
    put(
      kinds,
      ...Object.entries(KINDS).map(([kind, { label, sign, level, shownBy }]) => {
        const isKnown = city.knows(shownBy);
        const n = city.rows.filter((row) => row.attention.some((one) => one.kind === kind)).length;
        return el(
          "button",
          {
            type: "button",
            class: `kind level-${n ? level : 0}`,
            "aria-pressed": String(asked.show === kind),
            disabled: n === 0 && asked.show !== kind,
            on: {
              click: () => {
                asked.show = asked.show === kind ? null : kind;
                noteIt();
                showKinds();
                showRows(true);
              },
            },
          },
          el("span", { class: "sign", "aria-hidden": "true" }, sign),
          el("strong", {}, isKnown ? String(n) : NOTHING),
          ` ${label.toLowerCase()}`,
        );
      }),
    );
    kinds.children[focused]?.focus(); // the buttons are new ones
  };
  let isShown = false;
  const show = () => {
    if (!city.loaded) return;
    if (!city.rows.length) {
      isShown = false;
      summary.textContent = "";
      put(
        body,
        empty(
          "There are no links yet",
          "Send links over REST, or import a file of counts.",
          page.session.may("ingest") && el("a", { href: addressOf(["data"]), class: "button" }, "Import a file"),
        ),
      );
      return;
    }
    summary.textContent = summaryOf(city);
    showKinds();
    showRows();
    showMap();
    if (!isShown) put(body, kinds, panels);
    isShown = true;
  };
  const onFailure = () => {
    if (!isShown && page.live.state === "stale")
      put(
        body,
        failed(page.noAnswer, () => city.refresh().catch(() => {})),
      );
  };
  city.addEventListener("change", show);
  page.live.addEventListener("state", onFailure);
  if (city.horizon !== asked.horizon) city.look(asked.horizon).catch(() => {});
  show();
  onFailure();
  return {
    root,
    heading,
    title: "Network",
    close: () => {
      city.removeEventListener("change", show);
      page.live.removeEventListener("state", onFailure);
    },
  };
}

function summaryOf(city) {
  const { accuracy } = city;
  const isAlive = (row) => row.forecast && !row.attention.some((one) => one.kind === "dead");
  const shown = city.rows.find((row) => row.status === "ok") ?? city.rows.find(isAlive);
  const slot = shown?.forecast?.slot_start;
  const parts = [slot && `Forecast for ${dayTime(slot, city.zone)} (${zoneName(city.zone, slot)})`];
  if (accuracy?.rmse !== null && accuracy?.rmse !== undefined) {
    parts.push(
      `last 24 h: RMSE ${number(accuracy.rmse, 1)}, MARE ${percent(accuracy.mare)}, ` +
        `GEH below 5 in ${percent(accuracy.geh_pass_share)} of slots`,
    );
  }
  return parts.filter(Boolean).join(" · ");
}

function look(row, colouring) {
  const value = colouring.of(row);
  const step = stepOf(colouring, value);
  const isDead = row.attention.some((one) => one.kind === "dead");
  const lines = [
    `${row.link.name} (${row.id})`,
    value === null ? "nothing known" : colouring.write(value),
    ...row.attention.map((one) => `${KINDS[one.kind].label}: ${one.reason}`),
  ];
  return {
    step,
    scale: colouring.scale,
    width: step < 0 ? 2 : colouring.steps[step].width,
    isDead,
    title: lines.join("\n"),
  };
}

function readSort(text) {
  return text ? { name: text.replace(/^-/, ""), down: text.startsWith("-") } : { name: "attention", down: true };
}
