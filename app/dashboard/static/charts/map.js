/** The links on a map drawn from their geometry, or in a grid where they have none. */

import { el, put, svg } from "../dom.js";

const PAD = 16;
const SIDE = 3.4; // pixels to the right of the middle, so that both directions of a road are seen
const LABELLED = 60; // tiles; more have no room for names

/**
 * @typedef {{step: number, scale: string, width: number, isDead: boolean, title: string}} Look
 * @typedef {{id: string, link: any}} Row
 */
export class CityMap {
  /** @param {{onPoint: (id: string | null) => void, onOpen: (id: string) => void}} handlers */
  constructor(handlers) {
    this.image = svg("svg", { class: "map", role: "img" });
    this.tiles = svg("svg", { class: "map tiles", role: "img" });
    this.element = el("div", { class: "map-holder" }, this.image, this.tiles);
    /** @type {Map<string, {shape: SVGElement, title: SVGElement}>} */ this.shapes = new Map();
    this.rows = [];
    this.drawnFor = "";
    this.size = [0, 0];
    for (const image of [this.image, this.tiles]) {
      const idAt = (event) => event.target.closest?.("[data-id]")?.dataset.id ?? null;
      image.addEventListener("pointerover", (event) => handlers.onPoint(idAt(event)));
      image.addEventListener("pointerleave", () => handlers.onPoint(null));
      image.addEventListener("click", (event) => idAt(event) && handlers.onOpen(idAt(event)));
    }
    new ResizeObserver(([entry]) => {
      const size = [Math.round(entry.contentRect.width), Math.round(entry.contentRect.height)];
      if (size[0] && (size[0] !== this.size[0] || size[1] !== this.size[1])) {
        this.size = size;
        this.drawnFor = "";
        this.#draw();
        this.#colour();
      }
    }).observe(this.element);
  }

  /** @param {Row[]} rows @param {(row: any) => Look} look @param {string} label */
  show(rows, look, label) {
    this.rows = rows;
    this.look = look;
    this.image.setAttribute("aria-label", label);
    this.tiles.setAttribute("aria-label", label);
    if (!this.size[0]) return;
    this.#draw();
    this.#colour();
  }

  /** @param {string | null} id */
  mark(id) {
    this.marked?.classList.remove("marked");
    this.marked = id === null ? null : this.shapes.get(id)?.shape;
    this.marked?.classList.add("marked");
  }

  #draw() {
    const wanted = this.rows.map((row) => `${row.id}@${row.link.updated_at}`).join() + this.size;
    if (wanted === this.drawnFor) return;
    this.drawnFor = wanted;
    this.shapes.clear();
    const placed = this.rows.filter((row) => row.link.geometry);
    const others = this.rows.filter((row) => !row.link.geometry);
    this.image.toggleAttribute("hidden", !placed.length);
    this.tiles.toggleAttribute("hidden", !others.length);
    if (placed.length) this.#drawMap(placed, others.length > 0);
    if (others.length) this.#drawTiles(others, placed.length > 0);
  }

  #drawMap(rows, hasTiles) {
    const [width, all] = this.size;
    const height = hasTiles ? Math.round(all * 0.6) : all;
    const project = projection(
      rows.flatMap((row) => lines(row.link.geometry).flat()),
      width,
      height,
    );
    this.image.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.image.setAttribute("width", String(width));
    this.image.setAttribute("height", String(height));
    put(
      this.image,
      ...rows.map((row) => {
        const path = lines(row.link.geometry)
          .map((line) => drawn(line.map(project)))
          .join("");
        return this.#shape(row, svg("path", { class: "road", d: path }), svg("path", { class: "hit", d: path }));
      }),
    );
  }

  #drawTiles(rows, hasMap) {
    const [width, all] = this.size;
    const height = hasMap ? Math.round(all * 0.38) : all;
    const columns = Math.max(1, Math.min(rows.length, Math.ceil(Math.sqrt((rows.length * width) / height))));
    const [wide, high] = [width / columns, Math.min(56, height / Math.ceil(rows.length / columns))];
    this.tiles.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.tiles.setAttribute("width", String(width));
    this.tiles.setAttribute("height", String(height));
    put(
      this.tiles,
      ...rows.map((row, i) => {
        const place = {
          x: (i % columns) * wide + 1.5,
          y: Math.floor(i / columns) * high + 1.5,
          width: wide - 3,
          height: high - 3,
        };
        const name =
          rows.length <= LABELLED &&
          svg(
            "text",
            {
              class: "tile-name",
              x: place.x + place.width / 2,
              y: place.y + place.height / 2 + 4,
              "text-anchor": "middle",
            },
            row.id,
          );
        return this.#shape(row, svg("rect", { class: "tile", rx: 3, ...place }), name);
      }),
    );
  }

  #shape(row, ...parts) {
    const title = svg("title");
    const shape = svg("g", { "data-id": row.id }, title, ...parts);
    this.shapes.set(row.id, { shape, title });
    return shape;
  }

  #colour() {
    for (const row of this.rows) {
      const found = this.shapes.get(row.id);
      if (!found) continue;
      const { step, scale, width, isDead, title } = this.look(row);
      const words = ["link", step < 0 ? "unknown" : `${scale}-${step}`, `w${width}`];
      if (isDead) words.push("dead");
      if (found.shape === this.marked) words.push("marked");
      const name = words.join(" ");
      if (found.shape.getAttribute("class") !== name) found.shape.setAttribute("class", name);
      if (found.title.textContent !== title) found.title.textContent = title;
    }
  }
}

/** Return an equirectangular projection with the scale of the city's middle latitude. */
function projection(points, width, height) {
  const lons = points.map(([lon]) => lon);
  const lats = points.map(([, lat]) => lat);
  const [west, east, south, north] = [min(lons), max(lons), min(lats), max(lats)];
  const narrow = Math.cos((((south + north) / 2) * Math.PI) / 180);
  const scale = Math.min(
    (width - 2 * PAD) / ((east - west) * narrow || 1e-6),
    (height - 2 * PAD) / (north - south || 1e-6),
  );
  const [left, top] = [(width - (east - west) * narrow * scale) / 2, (height - (north - south) * scale) / 2];
  return ([lon, lat]) => [left + (lon - west) * narrow * scale, top + (north - lat) * scale];
}

const min = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const max = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

/** Return a geometry as lines; a point is a line of one. */
function lines({ type, coordinates }) {
  switch (type) {
    case "Point":
      return [[coordinates]];
    case "MultiPoint":
      return coordinates.map((point) => [point]);
    case "LineString":
      return [coordinates];
    case "MultiPolygon":
      return coordinates.flat();
    default:
      return coordinates;
  }
}

/** Return a path moved to the right of its direction; a point becomes a short stroke. */
function drawn(points) {
  if (points.length === 1) return `M${point(points[0])}l0.1 0`;
  const moved = points.map(([x, y], i) => {
    const [ax, ay] = points[Math.max(0, i - 1)];
    const [bx, by] = points[Math.min(points.length - 1, i + 1)];
    const length = Math.hypot(bx - ax, by - ay) || 1;
    return [x - (SIDE * (by - ay)) / length, y + (SIDE * (bx - ax)) / length];
  });
  return `M${moved.map(point).join("L")}`;
}

const point = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
