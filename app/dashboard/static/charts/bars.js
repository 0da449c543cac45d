/** Vertical bars with names below, for example the weights of lags. */

import { put, svg } from "../dom.js";
import { Drawn } from "./drawn.js";
import { linear, ticks } from "./scales.js";

const MARGIN = { top: 8, right: 10, bottom: 34, left: 46 };

export class BarChart extends Drawn {
  /**
   * @param {{label: string, below: string, bars: {name: string, value: number, title: string}[],
   *   write: (value: number) => string}} picture
   */
  draw({ label, below, bars, write }, width) {
    const height = 160;
    const marks = ticks(Math.max(1e-9, ...bars.map((bar) => bar.value)), 3);
    const y = linear([0, marks[marks.length - 1]], [height - MARGIN.bottom, MARGIN.top]);
    const step = (width - MARGIN.left - MARGIN.right) / bars.length;
    const every = Math.ceil(26 / step);
    put(
      this.element,
      svg(
        "svg",
        { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
        ...marks.flatMap((mark) => [
          svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(mark), y2: y(mark) }),
          svg("text", { class: "tick", x: MARGIN.left - 6, y: y(mark) + 4, "text-anchor": "end" }, write(mark)),
        ]),
        ...bars.flatMap((bar, i) => {
          const x = MARGIN.left + i * step;
          return [
            svg(
              "rect",
              {
                class: "bar",
                x: x + step * 0.14,
                width: step * 0.72,
                y: y(bar.value),
                height: Math.max(0, y(0) - y(bar.value)),
              },
              svg("title", {}, bar.title),
            ),
            i % every === 0 &&
              svg("text", { class: "tick", x: x + step / 2, y: height - 19, "text-anchor": "middle" }, bar.name),
          ];
        }),
        svg(
          "text",
          { class: "tick", x: (MARGIN.left + width - MARGIN.right) / 2, y: height - 4, "text-anchor": "middle" },
          below,
        ),
      ),
    );
  }
}
