/** The experts of a link: how much each weighs in the next forecast and over the last day, and how wrong it was. */

import { TimeChart } from "../charts/time_chart.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { clockTime, NOTHING, number, percent } from "../formats.js";

const NAMES = { profile: "profile", last_count: "last count", scaled_profile: "profile scaled by the last hour" };
const MEANINGS = {
  last_count: "the road does not follow its usual course",
  scaled_profile: "the road follows its usual course at another level",
  profile: "the road follows its usual course",
  NETWORK: "the road follows what the network explains",
  KR_SML: "the road follows moments of its own past",
};
const MUCH = 0.5; // of the weight, from which an expert leads

/** @param {{name: string, model_version: number | null}} expert */
export const expertName = ({ name, model_version: version }) => `${NAMES[name] ?? name}${version ? ` v${version}` : ""}`;

export class LinkExperts {
  /** @param {string} id */
  constructor(id) {
    this.experts = [];
    this.slots = [];
    this.chart = new TimeChart();
    this.moved = el("p", { role: "status" });
    this.list = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Experts" });
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
    this.element = panel(
      { title: "Experts", kind: "wide", note: "1 slot ahead; weights follow the latest errors", table },
      this.moved,
      el("div", { class: "beside" }, this.list, this.chart.element),
    );
    this.element.hidden = true;
  }

  /** @param {any} answer @param {any[]} slots weights over the last day @param {any} link */
  show({ explanation }, slots, link) {
    this.experts = explanation?.experts ?? [];
    this.slots = slots;
    this.element.hidden = this.experts.length === 0;
    if (!this.experts.length) return;
    put(this.list, expertTable(this.experts));
    const moved = sentence(slots, link.zone);
    this.moved.hidden = !moved;
    if (this.moved.textContent !== moved) this.moved.textContent = moved; // or it would be read out again
    this.chart.element.hidden = slots.length < 2;
    if (slots.length >= 2) this.#showWeights(link);
  }

  #showWeights(link) {
    const names = Object.keys(this.slots[this.slots.length - 1].weights);
    const below = this.slots.map(() => 0);
    const series = names.map((name, i) => ({
      kind: /** @type {"share"} */ ("share"),
      name: `expert-${i}`,
      label: NAMES[name] ?? name,
      points: this.slots.map((slot, at) => {
        const lower = below[at];
        const value = slot.weights[name] ?? 0;
        below[at] = lower + value;
        return { at: Date.parse(slot.slot_start), value, lower, upper: below[at] };
      }),
    }));
    this.chart.show({
      zone: link.zone,
      slot: link.slot_minutes * 60_000,
      height: 180,
      most: 1,
      label: `Weights of the experts over the last day, now ${this.experts.map((one) => `${expertName(one)} ${percent(one.weight)}`).join(", ")}`,
      write: (value) => percent(value),
      series,
    });
  }
}

/** Return since when another expert leads than before, and what that means; empty where none took the lead. */
export function sentence(slots, zone) {
  const leader = (slot) => Object.entries(slot.weights).find(([, weight]) => weight >= MUCH)?.[0];
  const last = slots[slots.length - 1];
  const name = last && leader(last);
  if (!name) return "";
  let first = slots.length - 1;
  while (first > 0 && leader(slots[first - 1]) === name) first -= 1;
  if (first === 0) return "";
  const since = clockTime(slots[first].slot_start, zone);
  return `Since ${since} the ${NAMES[name] ?? name} carries most of the weight, now ${percent(last.weights[name])}: ${MEANINGS[name] ?? "it was best in the last hours"}.`;
}

function expertTable(experts) {
  const names = ["Expert", "Weight", "Expects", "RMSE, 24 h"];
  return el(
    "table",
    {},
    el("caption", { class: "visually-hidden" }, "Experts by weight"),
    el(
      "thead",
      {},
      el("tr", {}, ...names.map((name, i) => el("th", { scope: "col", class: i ? "number" : null }, name))),
    ),
    el("tbody", {}, ...experts.map(row)),
  );
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
