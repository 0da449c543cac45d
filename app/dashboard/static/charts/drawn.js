/** A picture that is drawn again when its data or its width changes. */

import { el } from "../dom.js";

export class Drawn {
  constructor() {
    this.element = el("div", { class: "chart canvas" });
    this.width = 0;
    this.picture = null;
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.#redraw();
      }
    }).observe(this.element);
  }

  /** @param {object} picture What `draw` of the chart takes. */
  show(picture) {
    this.picture = picture;
    this.#redraw();
  }

  #redraw() {
    if (this.picture && this.width) this.draw(this.picture, this.width);
  }
}
