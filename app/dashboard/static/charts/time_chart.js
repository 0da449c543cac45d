/** Values over time as SVG: lines with gaps, shaded intervals, stars, dots and bars. */

import { el, put, svg } from "../dom.js";
import { dayTime, number } from "../formats.js";
import { linear, ticks, timeTicks } from "./scales.js";

const MARGIN = { top: 10, right: 14, bottom: 24, left: 46 };
const TICK_WIDTH = 74;

/**
 * @typedef {{at: number, value: number | null, lower?: number | null, upper?: number | null, quality?: string | null}} Point
 * @typedef {"line" | "band" | "share" | "stars" | "dots" | "bars" | "level"} Kind
 * @typedef {{kind: Kind, label: string, name: string, points: Point[], value?: number}} Series
 * @typedef {{zone: string, label: string, series: Series[], height?: number, most?: number, from?: number, to?: number,
 *   now?: number | null, slot?: number, decimals?: number, write?: (value: number) => string}} Picture
 */

export class TimeChart {
  /** @param {Picture | null} [picture] */
  constructor(picture = null) {
    this.readout = el("p", { class: "readout", "aria-hidden": "true" }, " ");
    this.canvas = el("div", { class: "canvas" });
    this.legend = el("ul", { class: "legend" });
    this.element = el("div", { class: "chart" }, this.legend, this.canvas, this.readout);
    this.width = 0;
    this.picture = picture;
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.#draw();
      }
    }).observe(this.canvas);
  }

  /** @param {Picture} picture */
  show(picture) {
    this.picture = picture;
    if (this.width) this.#draw();
  }

  #draw() {
    const { picture, width } = this;
    if (!picture) return;
    const height = picture.height ?? 220;
    const drawn = picture.series.filter((one) => one.points.length || one.kind === "level");
    const times = drawn.flatMap((one) => one.points.map((point) => point.at));
    const from = picture.from ?? Math.min(...times);
    const to = picture.to ?? Math.max(...times) + (picture.slot ?? 0);
    const marks = ticks(picture.most ?? highest(drawn), height < 140 ? 2 : 4);
    const x = linear([from, to], [MARGIN.left, width - MARGIN.right]);
    const y = linear([0, marks[marks.length - 1]], [height - MARGIN.bottom, MARGIN.top]);
    const write = picture.write ?? ((value) => number(value, picture.decimals ?? 0));
    const room = Math.max(2, Math.floor((width - MARGIN.left - MARGIN.right) / TICK_WIDTH));
    const image = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": picture.label },
      ...marks.flatMap((mark) => [
        svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(mark), y2: y(mark) }),
        svg("text", { class: "tick", x: MARGIN.left - 6, y: y(mark) + 4, "text-anchor": "end" }, write(mark)),
      ]),
      ...timeTicks(from, to, picture.zone, room).flatMap((tick) => [
        svg("line", {
          class: tick.isDay ? "grid day" : "grid",
          x1: x(tick.at),
          x2: x(tick.at),
          y1: MARGIN.top,
          y2: height - MARGIN.bottom,
        }),
        svg("text", { class: "tick", x: x(tick.at), y: height - 7, "text-anchor": "middle" }, tick.label),
      ]),
      picture.now &&
        picture.now >= from &&
        picture.now <= to &&
        svg("line", {
          class: "now",
          x1: x(picture.now),
          x2: x(picture.now),
          y1: MARGIN.top,
          y2: height - MARGIN.bottom,
        }),
      ...drawn.map((one) => drawSeries(one, x, y, picture.slot ?? 0, [from, to])),
    );
    const cursor = svg("line", { class: "cursor", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
    image.append(cursor);
    image.addEventListener("pointermove", (event) => this.#read(event, drawn, x, cursor, write));
    image.addEventListener("pointerleave", () => this.#unread(cursor));
    put(this.canvas, image);
    put(this.legend, ...picture.series.map((one) => el("li", {}, key(one), one.label)));
  }

  #read(event, drawn, x, cursor, write) {
    const place = event.offsetX;
    const times = [...new Set(drawn.flatMap((one) => one.points.map((point) => point.at)))];
    if (!times.length) return;
    const at = times.reduce((best, time) => (Math.abs(x(time) - place) < Math.abs(x(best) - place) ? time : best));
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    cursor.setAttribute("visibility", "visible");
    const readings = drawn.flatMap((one) => {
      const point = one.points.find((other) => other.at === at);
      if (!point) return [];
      if (one.kind === "band")
        return point.upper === null || point.upper === undefined
          ? []
          : [`${one.label} ${write(point.lower ?? 0)}–${write(point.upper)}`];
      return point.value === null ? [] : [`${one.label} ${write(point.value)}`];
    });
    this.readout.textContent = [dayTime(at, this.picture.zone), ...readings].join(" · ");
  }

  #unread(cursor) {
    cursor.setAttribute("visibility", "hidden");
    this.readout.textContent = " ";
  }
}

const highest = (series) =>
  Math.max(
    1e-9,
    ...series.flatMap((one) => [
      one.value ?? 0,
      ...one.points.flatMap((point) => [point.value ?? 0, point.upper ?? 0]),
    ]),
  );

function drawSeries(one, x, y, slot, span) {
  const known = one.points.filter((point) => point.value !== null);
  switch (one.kind) {
    case "line":
      return svg("path", { class: `line ${one.name}`, d: linePath(one.points, x, y) });
    case "band":
    case "share": // drawn from the sum of those below it on, and read as its own value
      return svg("path", { class: `${one.kind} ${one.name}`, d: bandPath(one.points, x, y) });
    case "bars": {
      const width = Math.max(2, (x(slot) - x(0)) * 0.72);
      return svg(
        "g",
        { class: `bars ${one.name}` },
        ...known.map((point) =>
          svg("rect", {
            x: x(point.at) + (x(slot) - x(0) - width) / 2,
            width,
            y: y(point.value),
            height: Math.max(0, y(0) - y(point.value)),
          }),
        ),
      );
    }
    case "level":
      return svg("line", {
        class: `level ${one.name}`,
        x1: x(span[0]),
        x2: x(span[1]),
        y1: y(one.value),
        y2: y(one.value),
      });
    case "dots":
      return svg(
        "g",
        { class: `dots ${one.name}` },
        ...known.map((point) => svg("circle", { cx: x(point.at), cy: y(point.value), r: 2.4 })),
      );
    default:
      return svg("path", {
        class: `stars ${one.name}`,
        d: known.map((point) => star(x(point.at), y(point.value), known.length > 120 ? 3.4 : 5.5)).join(""),
      });
  }
}

/** Return the path of a line that breaks where there is no count. */
function linePath(points, x, y) {
  let path = "";
  let isBroken = true;
  for (const point of points) {
    if (point.value === null) isBroken = true;
    else {
      path += `${isBroken ? "M" : "L"}${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`;
      isBroken = false;
    }
  }
  return path;
}

function bandPath(points, x, y) {
  const runs = [[]];
  for (const point of points) {
    if (point.upper === null || point.upper === undefined) runs.push([]);
    else runs[runs.length - 1].push(point);
  }
  return runs
    .filter((run) => run.length)
    .map((run) => {
      // One point alone would have no width.
      const spread =
        run.length > 1 ? run.map((point) => [x(point.at), point]) : [-3, 3].map((off) => [x(run[0].at) + off, run[0]]);
      const above = spread.map(([at, point]) => `${at.toFixed(1)} ${y(point.upper).toFixed(1)}`);
      const below = spread.reverse().map(([at, point]) => `${at.toFixed(1)} ${y(point.lower ?? 0).toFixed(1)}`);
      return `M${above.join("L")}L${below.join("L")}Z`;
    })
    .join("");
}

/** Return a five-pointed star, as the paper draws forecasts. */
function star(cx, cy, radius) {
  const corners = Array.from({ length: 10 }, (_, i) => {
    const angle = (Math.PI / 5) * i - Math.PI / 2;
    const far = i % 2 ? radius * 0.42 : radius;
    return `${(cx + far * Math.cos(angle)).toFixed(1)} ${(cy + far * Math.sin(angle)).toFixed(1)}`;
  });
  return `M${corners.join("L")}Z`;
}

function key(one) {
  const image = svg("svg", { width: 22, height: 12, "aria-hidden": "true" });
  const at = (value) => value;
  const points = [
    { at: 2, value: 6, lower: 11, upper: 1 },
    { at: 20, value: 6, lower: 11, upper: 1 },
  ];
  const shown =
    ["line", "band", "share", "level"].includes(one.kind)
      ? points
      : [{ at: one.kind === "bars" ? 8 : 11, value: one.kind === "bars" ? 2 : 6 }];
  if (one.kind === "bars")
    image.append(svg("g", { class: `bars ${one.name}` }, svg("rect", { x: 6, y: 2, width: 10, height: 9 })));
  else image.append(drawSeries({ ...one, points: shown, value: 6 }, at, at, 10, [2, 20]));
  return image;
}
