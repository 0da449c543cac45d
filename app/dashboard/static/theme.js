/** Light or dark: as the system has it, until the user chooses. */

import { el } from "./dom.js";

const STORED = "flowcast.theme";
const CHOICES = ["auto", "light", "dark"];
const NAMES = { auto: "Auto", light: "Light", dark: "Dark" };

const chosen = () => (CHOICES.includes(localStorage.getItem(STORED) ?? "") ? localStorage.getItem(STORED) : "auto");

function apply() {
  const theme = chosen();
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** Return a button that cycles through the choices. */
export function themeButton() {
  apply();
  const button = el("button", { type: "button", class: "quiet theme" });
  const update = () => {
    button.textContent = `Colours: ${NAMES[chosen()]}`;
  };
  button.addEventListener("click", () => {
    localStorage.setItem(STORED, CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length]);
    apply();
    update();
  });
  update();
  return button;
}
