/** The experts of a link: how much each weighs in the next forecast, what it expects, and how wrong it was. */

import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { NOTHING, number, percent } from "../formats.js";

const NAMES = { profile: "profile", last_count: "last count", scaled_profile: "profile scaled by the last hour" };

/** @param {{name: string, model_version: number | null}} expert */
export const expertName = ({ name, model_version: version }) => `${NAMES[name] ?? name}${version ? ` v${version}` : ""}`;

export class LinkExperts {
  /** @param {string} id */
  constructor(id) {
    this.experts = [];
    this.place = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Experts" });
    const table = () => ({
      name: `${id} experts`,
      columns: ["expert", "model_version", "weight", "expected_count", "recent_rmse", "recent_slots"],
      rows: this.experts.map((one) => [
        one.name,
        one.model_version,
        one.weight,
        one.expected_count,
        one.recent_rmse,
        one.recent_slots,
      ]),
    });
    const note = "1 slot ahead; weights follow the latest errors";
    this.element = panel({ title: "Experts", note, table }, this.place);
    this.element.hidden = true;
  }

  /** @param {any} answer */
  show({ explanation }) {
    this.experts = explanation?.experts ?? [];
    this.element.hidden = this.experts.length === 0;
    const names = ["Expert", "Weight", "Expects", "RMSE, 24 h"];
    put(
      this.place,
      el(
        "table",
        {},
        el("caption", { class: "visually-hidden" }, "Experts by weight"),
        el(
          "thead",
          {},
          el("tr", {}, ...names.map((name, i) => el("th", { scope: "col", class: i ? "number" : null }, name))),
        ),
        el("tbody", {}, ...this.experts.map(row)),
      ),
    );
  }
}

function row(one) {
  const isMissing = one.expected_count === null;
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, expertName(one)),
    el(
      "td",
      { class: "number weight" },
      el("meter", { min: 0, max: 1, value: one.weight, "aria-hidden": "true" }),
      percent(one.weight, 1),
    ),
    el("td", { class: "number" }, isMissing ? "left out" : number(one.expected_count, 1)),
    el("td", { class: "number" }, one.recent_slots ? number(one.recent_rmse, 1) : NOTHING),
  );
}
