/** The next expected count of a network's model as a sum: the profile, and what each part of the context adds. */

import { RowChart } from "../charts/rows.js";
import { partName } from "../context_parts.js";
import { el, put } from "../dom.js";
import { asTable, panel } from "../figure.js";
import { clockTime, number, signed } from "../formats.js";

export class LinkContext {
  /** @param {string} id */
  constructor(id) {
    this.parts = [];
    this.chart = new RowChart();
    this.note = el("span", {});
    this.summary = el("p", { class: "note" });
    const table = () => ({
      name: `${id} parts of the expected count`,
      columns: ["part", "meaning", "vehicles", "sum"],
      rows: this.parts.map((one) => [one.part, partName(one.part), one.vehicles, one.sum]),
    });
    this.written = asTable(table);
    this.element = panel(
      { title: "Parts of the expected count", note: this.note, table },
      this.chart.element,
      this.summary,
      this.written.element,
    );
    this.element.hidden = true;
  }

  /** @param {any} answer @param {any} link @param {{name: string, expected: number}} model that is explained */
  show({ explanation, forecasts }, link, model) {
    const context = explanation?.context ?? [];
    this.element.hidden = context.length === 0;
    let sum = 0;
    this.parts = context.map((one) => ({ ...one, from: sum, sum: (sum += one.vehicles) }));
    if (!context.length) return;
    const [next] = forecasts;
    const at = clockTime(next.slot_start, link.zone);
    this.note.textContent = `${model.name}, 1 slot ahead, ${at}, in vehicles`;
    const heaviest = [...context]
      .filter((one) => one.part !== "usual")
      .sort((a, b) => Math.abs(b.vehicles) - Math.abs(a.vehicles))
      .slice(0, 3)
      .map((one) => `${partName(one.part)} ${signed(one.vehicles, 1)}`)
      .join(", ");
    const shares = explanation.shares;
    // Drawn from the profile on: beside a bar from 0, the other parts could hardly be seen.
    const usual = this.parts[0].part === "usual" ? this.parts[0].sum : 0;
    put(
      this.summary,
      usual ? `The bars begin at the profile, ${number(usual, 1)}. ` : "",
      `Largest parts: ${heaviest}. `,
      sum < 0 ? "The sum is below 0, so 0 is expected. " : "",
      shares && !shares.own && !shares.network ? "This model does not use similar moments." : "",
    );
    this.chart.show({
      label:
        `The ${number(model.expected, 1)} vehicles expected at ${at} as a sum: ` +
        context.map((one) => `${partName(one.part)} ${signed(one.vehicles, 1)}`).join(", "),
      rows: [
        ...this.parts.map((one) => ({
          name: partName(one.part),
          from: one.part === "usual" ? 0 : one.from - usual,
          to: one.sum - usual,
          text: one.part === "usual" ? number(one.vehicles, 1) : signed(one.vehicles, 1),
          kind: one.vehicles < 0 ? "less" : "more",
        })),
        {
          name: "expected",
          from: 0,
          to: model.expected - usual,
          text: number(model.expected, 1),
          kind: "sum",
        },
      ],
    });
    this.written.refresh();
  }
}
