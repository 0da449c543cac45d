/** Sign-in with an API key, which is kept for the tab's session only. */

import { Problem } from "../api.js";
import { el } from "../dom.js";

/** @param {import("../session.js").Session} session @param {() => Promise<void>} enter @param {string} [why] */
export function signInView(session, enter, why = "") {
  const message = el("p", { class: "problem", role: "alert" }, why);
  const input = el("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "key-note",
  });
  const button = el("button", { type: "submit", class: "primary" }, "Sign in");
  const submit = async (event) => {
    event.preventDefault();
    const key = input.value.trim();
    if (!/^[\x21-\x7e]+$/.test(key)) {
      message.textContent = "A key has visible characters only, without blanks.";
      return;
    }
    button.disabled = true;
    message.textContent = "";
    session.keep(key);
    try {
      await enter();
    } catch (problem) {
      session.forget();
      const isWrong = problem instanceof Problem && problem.status === 401;
      message.textContent = isWrong
        ? "This key is unknown, expired or revoked."
        : `It did not work: ${/** @type {Error} */ (problem).message}.`;
      input.select();
    } finally {
      button.disabled = false;
    }
  };
  const heading = el("h1", { tabindex: "-1" }, "Flowcast");
  const root = el(
    "div",
    { class: "sign-in" },
    el(
      "form",
      { class: "panel", on: { submit } },
      heading,
      el("p", {}, "The city's links, which forecasts to trust, and what to do about the others."),
      el("label", { for: "key" }, "API key"),
      input,
      el("p", { id: "key-note", class: "note" }, "It stays in this tab and is forgotten when the tab is closed."),
      button,
      message,
    ),
  );
  return { root, heading, title: "Sign in", close: () => {}, input };
}
