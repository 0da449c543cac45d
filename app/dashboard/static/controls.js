/** Controls that several views share. */

import { el } from "./dom.js";

/** Return a labelled select element. */
export function select(id, label, choices, chosen, onChange) {
  const box = el(
    "select",
    { id, on: { change: () => onChange(box.value) } },
    ...choices.map(([value, name]) => el("option", { value, selected: String(value) === String(chosen) }, name)),
  );
  return [el("span", { class: "field" }, el("label", { for: id }, label), box)];
}
