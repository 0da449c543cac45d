/** Confirmation of actions that change forecasts. */

import { el } from "./dom.js";

/**
 * Show a dialog; return the text that was entered, or null if it was not confirmed.
 * @param {{title: string, text: string, act: string, reason?: boolean}} question
 * @returns {Promise<{reason: string} | null>}
 */
export function confirm({ title, text, act, reason = false }) {
  return new Promise((resolve) => {
    const why = el("input", { id: "why", maxlength: 500, autocomplete: "off" });
    const close = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const dialog = el(
      "dialog",
      {
        "aria-labelledby": "question",
        on: {
          cancel: (event) => {
            event.preventDefault();
            close(null);
          },
        },
      },
      el(
        "form",
        {
          method: "dialog",
          on: {
            submit: (event) => {
              event.preventDefault();
              close({ reason: why.value.trim() });
            },
          },
        },
        el("h2", { id: "question" }, title),
        el("p", {}, text),
        reason && el("label", { for: "why" }, "Why (kept in the history)", why),
        el(
          "div",
          { class: "acts" },
          el("button", { type: "button", on: { click: () => close(null) } }, "Leave it"),
          el("button", { type: "submit", class: "primary" }, act),
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
