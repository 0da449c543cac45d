/** The links on a map that can be moved and zoomed, and a list of those that have no place. */

import { el, put } from "../dom.js";
import { addressOf } from "../router.js";
import { L } from "./leaflet.js";
import { LinkLayer } from "./link_layer.js";
import { shapesOf } from "./link_shapes.js";

const MOST_LISTED = 200;
const SCALE_PIXELS = 110; // the longest scale bar
const CLOSEST = 19;
const setting = (name) => document.querySelector(`meta[name="flowcast-map-${name}"]`)?.getAttribute("content") ?? "";

/**
 * @typedef {{step: number, scale: string, width: number, isDead: boolean, title: string}} Look
 * @typedef {{id: string, link: any}} Row
 */
export class CityMap {
  /** @param {{onPoint: (id: string | null) => void, onOpen: (id: string) => void}} handlers */
  constructor(handlers) {
    this.ground = el("div", { class: "city-map", role: "application" });
    this.tip = el("div", { class: "map-tip", hidden: true });
    this.scale = el("div", { class: "map-scale", "aria-hidden": "true" });
    this.holder = el(
      "div",
      { class: "map-holder" },
      this.ground,
      el(
        "div",
        { class: "map-buttons" },
        this.#button("+", "Zoom in", () => this.map.zoomIn()),
        this.#button("−", "Zoom out", () => this.map.zoomOut()),
        this.#button("Fit", "Fit the map to all links", () => this.#fit()),
        document.fullscreenEnabled && this.#button("Full", "Full screen", () => this.#fullScreen()),
      ),
      this.scale,
      setting("attribution") && el("div", { class: "map-attribution" }, setting("attribution")),
      this.tip,
    );
    this.unplaced = el("details", { class: "unplaced", hidden: true });
    this.element = el("div", { class: "map-and-list" }, this.holder, this.unplaced);
    this.rows = [];
    this.shapesFor = "";
    this.shapes = [];
    /** @type {Map<string, Look>} */ this.looks = new Map();
    this.handlers = handlers;
    new ResizeObserver(() => this.#resized()).observe(this.ground);
    const redraw = () => this.layer?.redraw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  /** @param {Row[]} rows @param {(row: any) => Look} look @param {string} label */
  show(rows, look, label) {
    this.rows = rows;
    this.looks = new Map(rows.map((row) => [row.id, look(row)]));
    this.ground.setAttribute("aria-label", label);
    const wanted = rows.map((row) => `${row.id}@${row.link.updated_at}`).join();
    const isNew = wanted !== this.shapesFor;
    if (isNew) {
      this.shapesFor = wanted;
      this.shapes = shapesOf(rows);
    }
    const isWithoutMap = !this.shapes.length;
    this.holder.hidden = isWithoutMap;
    this.#listUnplaced();
    this.ground.dataset.drawn = String(this.shapes.length);
    if (isNew && this.map) this.#fit();
    this.#draw();
  }

  /** @param {string | null} id */
  mark(id) {
    this.layer?.mark(id);
  }

  #button(text, label, onClick) {
    return el("button", { type: "button", title: label, "aria-label": label, on: { click: onClick } }, text);
  }

  /** Make the map when its element has a size, and follow that. */
  #resized() {
    if (!this.ground.clientWidth || !this.ground.clientHeight) return;
    if (this.map) {
      this.map.invalidateSize({ pan: false });
      return;
    }
    this.map = L.map(this.ground, {
      attributionControl: false, // both assign markup; the page has its own
      zoomControl: false,
      zoomAnimation: false,
      fadeAnimation: false,
      zoomSnap: 0.25,
      zoomDelta: 0.5,
      maxZoom: CLOSEST,
    });
    if (setting("tiles")) L.tileLayer(setting("tiles"), { maxZoom: CLOSEST }).addTo(this.map);
    this.layer = new LinkLayer();
    this.#fit();
    this.layer.addTo(this.map);
    this.map.on("mousemove", (event) => this.#point(event.containerPoint));
    this.map.on("mouseout", () => this.#point(null));
    this.map.on("click", (event) => {
      const id = this.layer.at(event.containerPoint);
      if (id) this.handlers.onOpen(id);
    });
    this.map.on("move zoom", () => this.#drawScale());
    this.#drawScale();
    this.#draw();
  }

  #draw() {
    this.layer?.show(this.shapes, (id) => {
      const { step, scale, width, isDead } = this.looks.get(id);
      return { colour: isDead ? "--grave" : step < 0 ? "--edge" : `--${scale}-${step}`, width, isDead, isKnown: step >= 0 };
    });
  }

  #fit() {
    const places = this.shapes.flatMap((shape) => (shape.lines.length ? shape.lines.flat() : [shape.at]));
    if (!places.length) return;
    const margins = { paddingTopLeft: [24, 24], paddingBottomRight: [64, 36] }; // buttons and the scale bar lie there
    this.map?.fitBounds(L.latLngBounds(places), { ...margins, maxZoom: 16 });
  }

  #fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.holder.requestFullscreen().catch(() => {});
  }

  #point(at) {
    const id = at && this.layer.at(at);
    this.ground.classList.toggle("over", Boolean(id));
    if (id !== this.pointed) {
      this.pointed = id;
      this.handlers.onPoint(id ?? null);
    }
    this.tip.hidden = !id;
    if (!id) return;
    this.tip.textContent = this.looks.get(id)?.title ?? id;
    const isRight = at.x > this.ground.clientWidth / 2;
    this.tip.style.left = isRight ? "" : `${at.x + 14}px`;
    this.tip.style.right = isRight ? `${this.ground.clientWidth - at.x + 14}px` : "";
    this.tip.style.top = `${Math.max(4, at.y - 10)}px`;
  }

  /** Show how long a round number of metres is in the middle of the map. */
  #drawScale() {
    const { x, y } = this.map.getSize();
    const [left, right] = [0, SCALE_PIXELS].map((off) => this.map.containerPointToLatLng([x / 2 + off, y / 2]));
    const most = this.map.distance(left, right);
    const power = 10 ** Math.floor(Math.log10(most));
    const metres = [5, 2, 1].map((factor) => factor * power).find((one) => one <= most) ?? power;
    this.scale.style.width = `${(SCALE_PIXELS * metres) / most}px`;
    this.scale.textContent = metres >= 1000 ? `${metres / 1000} km` : `${metres} m`;
  }

  #listUnplaced() {
    const placed = new Set(this.shapes.map((shape) => shape.id));
    const rows = this.rows.filter((row) => !placed.has(row.id));
    this.unplaced.hidden = !rows.length;
    if (!rows.length) return;
    if (this.holder.hidden) this.unplaced.setAttribute("open", "");
    put(
      this.unplaced,
      el("summary", {}, `${rows.length} ${rows.length === 1 ? "link has" : "links have"} no place`),
      el(
        "ul",
        {},
        ...rows.slice(0, MOST_LISTED).map((row) => {
          const { step, scale, isDead, title } = this.looks.get(row.id);
          const name = isDead ? "dead" : step < 0 ? "unknown" : `${scale}-${step}`;
          return el(
            "li",
            { class: `key ${name}`, title },
            el("span", { class: "swatch", "aria-hidden": "true" }),
            el("a", { href: addressOf(["links", row.id]) }, row.link.name || row.id),
          );
        }),
      ),
      rows.length > MOST_LISTED && el("p", { class: "note" }, `and ${rows.length - MOST_LISTED} more, see the table`),
    );
  }
}
