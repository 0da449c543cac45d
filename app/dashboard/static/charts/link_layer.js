/** A layer of a map that draws links on a canvas, and finds the one below the pointer. */

import { L } from "./leaflet.js";

const SIDE = 3.4; // pixels to the right of the middle, so that both directions of a road are seen
const REACH = 9; // pixels between the pointer and a link
const LABELLED = 60; // links in view; more have no room for names
const HEAD = 5; // pixels of an arrow's head
const EDGE = 40; // pixels beyond the view that are drawn

/**
 * @typedef {import("./link_shapes.js").Shape} Shape
 * @typedef {{colour: string, width: number, isDead: boolean, isKnown: boolean}} Stroke
 */
export const LinkLayer = L.Layer.extend({
  initialize() {
    /** @type {Shape[]} */ this.shapes = [];
    this.strokeOf = () => null;
    this.marked = null;
    this.drawn = []; // of each link in view, its id and its segments in pixels
  },

  onAdd(map) {
    this.canvas = L.DomUtil.create("canvas", "links", map.getPanes().overlayPane);
    map.on("move zoom viewreset resize", this.redraw, this);
    this.redraw();
  },

  onRemove(map) {
    map.off("move zoom viewreset resize", this.redraw, this);
    this.canvas.remove();
  },

  /** @param {Shape[]} shapes @param {(id: string) => Stroke} strokeOf */
  show(shapes, strokeOf) {
    this.shapes = shapes;
    this.strokeOf = strokeOf;
    this.redraw();
  },

  /** @param {string | null} id */
  mark(id) {
    if (id === this.marked) return;
    this.marked = id;
    this.redraw();
  },

  /** Return the link at a point of the map's element; null if none is near. @returns {string | null} */
  at({ x, y }) {
    let [best, least] = [null, REACH];
    for (const { id, segments } of this.drawn)
      for (const segment of segments) {
        const off = toSegment(x, y, segment);
        if (off < least) [best, least] = [id, off];
      }
    return best;
  },

  redraw() {
    if (!this._map || this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      if (this._map) this.draw(this._map);
    });
  },

  draw(map) {
    const size = map.getSize();
    const scale = globalThis.devicePixelRatio || 1;
    const { canvas } = this;
    [canvas.width, canvas.height] = [size.x * scale, size.y * scale];
    [canvas.style.width, canvas.style.height] = [`${size.x}px`, `${size.y}px`];
    L.DomUtil.setPosition(canvas, map.containerPointToLayerPoint([0, 0]));
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.lineCap = context.lineJoin = "round";
    const looks = getComputedStyle(canvas);
    const [ink, paper, edge] = ["--ink", "--card", "--edge"].map((name) => looks.getPropertyValue(name));
    const point = (latLng) => map.latLngToContainerPoint(latLng);
    const far = Math.max(14, Math.min(48, 6 * (map.getZoom() - 10))); // pixels from a junction to the end of an approach
    this.drawn = [];
    for (const shape of this.shapes) {
      const paths = shape.lines.length ? shape.lines.map((line) => moved(line.map(point))) : [approach(shape, point, far)];
      if (!paths.some((path) => isIn(path, size))) continue;
      const stroke = this.strokeOf(shape.id);
      const isMarked = shape.id === this.marked;
      const colour = isMarked ? ink : looks.getPropertyValue(stroke.colour);
      const width = stroke.width + (shape.lines.length ? 0 : 1.5) + (isMarked ? 2 : 0);
      context.beginPath();
      for (const path of paths) path.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
      if (stroke.isKnown && !stroke.isDead) this.outline(context, edge, width); // or pale colours would not be seen
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = width;
      context.setLineDash(stroke.isDead ? [3, 5] : stroke.isKnown ? [] : [1, 4]);
      context.stroke();
      context.setLineDash([]);
      if (shape.bearing !== null || shape.lines.length) arrowHead(context, paths[0], !shape.lines.length, width, edge);
      const segments = paths.flatMap((path) => (path.length > 1 ? path.slice(1).map((to, i) => [path[i], to]) : [[path[0], path[0]]]));
      this.drawn.push({ id: shape.id, segments, isApproach: !shape.lines.length });
    }
    if (this.drawn.length <= LABELLED) this.label(context, ink, paper);
  },

  outline(context, edge, width) {
    context.strokeStyle = edge;
    context.lineWidth = width + 1.6;
    context.stroke();
  },

  label(context, ink, paper) {
    context.font = '11px system-ui, "Liberation Sans", sans-serif';
    context.textAlign = "center";
    context.lineWidth = 3;
    const taken = [];
    for (const { id, segments, isApproach } of this.drawn) {
      const [[ax, ay], [bx, by]] = segments[Math.floor(segments.length / 2)];
      const half = context.measureText(id).width / 2 + 2;
      const outward = Math.sign(ax - bx) * Math.min(1, Math.abs(ax - bx) / 8); // beside the far end of an approach
      const place = isApproach
        ? { x: ax + outward * (half + 4), y: ay + (ay > by + 4 ? 14 : ay < by - 4 ? -6 : 4), half }
        : { x: (ax + bx) / 2, y: (ay + by) / 2 - 7, half };
      if (taken.some((one) => Math.abs(one.x - place.x) < one.half + half && Math.abs(one.y - place.y) < 12)) continue;
      taken.push(place);
      context.strokeStyle = paper;
      context.fillStyle = ink;
      context.strokeText(id, place.x, place.y);
      context.fillText(id, place.x, place.y);
    }
  },
});

/** Return a line moved to the right of its direction. */
function moved(points) {
  return points.map(({ x, y }, i) => {
    const a = points[Math.max(0, i - 1)];
    const b = points[Math.min(points.length - 1, i + 1)];
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    return [x - (SIDE * (b.y - a.y)) / length, y + (SIDE * (b.x - a.x)) / length];
  });
}

/** Return an approach as a line that ends near its junction; a single detector without a direction as a point. */
function approach({ at, bearing }, point, far) {
  const { x, y } = point(at);
  if (bearing === null) return [[x, y], [x + 0.1, y]];
  const [east, north] = [Math.sin((bearing * Math.PI) / 180), Math.cos((bearing * Math.PI) / 180)];
  return [far, far / 2.4].map((off) => [x + off * east, y - off * north]);
}

/** Draw the head of an arrow: at the end of an approach, in the middle of a line. */
function arrowHead(context, path, isAtEnd, width, edge) {
  const last = isAtEnd ? path.length - 1 : Math.max(1, Math.floor(path.length / 2));
  const [[ax, ay], [bx, by]] = [path[last - 1], path[last]];
  const length = Math.hypot(bx - ax, by - ay);
  if (length < (isAtEnd ? 1 : 4 * HEAD)) return;
  const [dx, dy] = [(bx - ax) / length, (by - ay) / length];
  const [x, y] = isAtEnd ? [bx, by] : [(ax + bx) / 2, (ay + by) / 2];
  const size = HEAD + width / 2;
  context.beginPath();
  context.moveTo(x + dx * size, y + dy * size);
  context.lineTo(x - dy * size * 0.8, y + dx * size * 0.8);
  context.lineTo(x + dy * size * 0.8, y - dx * size * 0.8);
  context.closePath();
  context.strokeStyle = edge;
  context.lineWidth = 1.6;
  context.stroke();
  context.fill();
}

const isIn = (path, size) =>
  path.some(([x, y]) => x > -EDGE && y > -EDGE && x < size.x + EDGE && y < size.y + EDGE) ||
  path.some(([ax, ay], i) => {
    const [bx, by] = path[i + 1] ?? [ax, ay]; // a long line may cross the view
    return Math.min(ax, bx) < size.x && Math.max(ax, bx) > 0 && Math.min(ay, by) < size.y && Math.max(ay, by) > 0;
  });

function toSegment(x, y, [[ax, ay], [bx, by]]) {
  const [dx, dy] = [bx - ax, by - ay];
  const share = Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - ax - share * dx, y - ay - share * dy);
}
