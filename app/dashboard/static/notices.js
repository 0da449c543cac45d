/** Short messages at the edge of the page, which disappear by themselves. */

import { el } from "./dom.js";

const SECONDS = 6;
const region = el("div", { class: "notices", role: "status", "aria-live": "polite" });

/** Return the element that holds the messages. */
export const noticeRegion = () => region;

/** @param {string} text @param {"info" | "bad"} [kind] */
export function notify(text, kind = "info") {
  const notice = el("p", { class: `notice ${kind}` }, text);
  region.append(notice);
  while (region.children.length > 3) region.firstChild?.remove();
  setTimeout(() => notice.remove(), SECONDS * 1000);
}
