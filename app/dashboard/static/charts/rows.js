/** Horizontal bars with names and figures: the parts of a sum, or shares. */

import { put, svg } from "../dom.js";
import { Drawn } from "./drawn.js";
import { linear } from "./scales.js";

const ROW = 22;
const LETTER = 6.6; // pixels of one, about
const GAP = 8;

/**
 * @typedef {{name: string, from: number, to: number, text: string, kind?: string}} Row
 */

export class RowChart extends Drawn {
  /** @param {{label: string, rows: Row[]}} picture */
  draw({ label, rows }, width) {
    const height = rows.length * ROW + 4;
    const longest = (texts) => LETTER * Math.max(...texts.map((text) => text.length)) + GAP;
    const left = Math.min(longest(rows.map((row) => row.name)), width * 0.5);
    const right = width - longest(rows.map((row) => row.text));
    const ends = [0, ...rows.flatMap((row) => [row.from, row.to])];
    const x = linear([Math.min(...ends), Math.max(...ends, Math.min(...ends) + 1e-9)], [left, right]);
    put(
      this.element,
      svg(
        "svg",
        { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
        svg("line", { class: "grid", x1: x(0), x2: x(0), y1: 0, y2: height }),
        ...rows.flatMap((row, i) => {
          const [start, end] = [x(row.from), x(row.to)].sort((a, b) => a - b);
          const middle = i * ROW + ROW / 2 + 2;
          const next = rows[i + 1];
          return [
            svg("text", { class: "tick", x: left - GAP, y: middle + 4, "text-anchor": "end" }, row.name),
            svg(
              "rect",
              { class: `bar ${row.kind ?? ""}`, x: start, width: Math.max(1, end - start), y: middle - 7, height: 14 },
              svg("title", {}, `${row.name}: ${row.text}`),
            ),
            // Where one part ends the next begins.
            next?.from === row.to &&
              svg("line", { class: "joint", x1: x(row.to), x2: x(row.to), y1: middle + 7, y2: middle + ROW - 7 }),
            svg("text", { class: "tick figure", x: width, y: middle + 4, "text-anchor": "end" }, row.text),
          ];
        }),
      ),
    );
  }
}
