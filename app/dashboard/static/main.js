/** The page: sign-in, navigation, and whether the data is current. */

import { Api, NoAnswer } from "./api.js";
import { City } from "./city.js";
import { el, put } from "./dom.js";
import { clockTime, ownZone, zoneName } from "./formats.js";
import { Live } from "./live.js";
import { noticeRegion } from "./notices.js";
import { addressOf, place } from "./router.js";
import { Session } from "./session.js";
import { empty, failed, notAllowed } from "./states.js";
import { themeButton } from "./theme.js";
import { dataView } from "./views/data.js";
import { linkView } from "./views/link.js";
import { linkDataView } from "./views/link_data.js";
import { networkView } from "./views/network.js";
import { retrainView } from "./views/retrain.js";
import { runView } from "./views/run.js";
import { signInView } from "./views/sign_in.js";

/** @typedef {{api: Api, session: Session, city: City, live: Live, noAnswer: NoAnswer}} Page what every view is given */
/** @typedef {{root: HTMLElement, heading: HTMLElement, title: string, close: () => void}} View */

const LIVE_WORDS = { connecting: "Connecting", live: "Live", polling: "Live, by polling", stale: "Stale" };

const session = new Session();
const api = new Api(() => session.key);
/** @type {Page | null} */
let page = null;
/** @type {View | null} */
let view = null;

const main = el("main", { id: "main" });
const nav = el("nav", { "aria-label": "Views" });
const status = el("span", { class: "live connecting" });
const clock = el("time", { class: "clock", hidden: true });
const staleBar = el("div", { class: "stale-bar", role: "alert", hidden: true });
const who = el("span", { class: "who" });
const signOut = el("button", { type: "button", class: "quiet", on: { click: () => leave() } }, "Sign out");
const header = el(
  "header",
  { class: "top" },
  el("a", { class: "brand", href: "#/network" }, el("span", { class: "star", "aria-hidden": "true" }, "★"), "Flowcast"),
  nav,
  el("div", { class: "right" }, status, clock, who, themeButton(), signOut),
);

document.body.prepend(
  el("a", { class: "skip", href: "#main", on: { click: skip } }, "Skip to the content"),
  header,
  staleBar,
  main,
  noticeRegion(),
);

function skip(event) {
  event.preventDefault(); // the part after # names the view that is shown
  view?.heading.focus();
}

async function enter() {
  api.begin();
  session.own = await api.get("v1/key");
  const city = new City(api);
  page = { api, session, city, live: new Live(api, city), noAnswer: new NoAnswer() };
  page.live.addEventListener("state", showLive);
  city.addEventListener("change", showClock);
  if (session.may("read")) page.live.start();
  showHeader();
  showLive();
  go();
}

function leave(why = "") {
  page?.live.stop();
  page = null;
  api.end();
  session.forget();
  showHeader();
  staleBar.hidden = true;
  const asked = signInView(session, enter, why);
  show(asked);
  asked.input.focus();
}

function showHeader() {
  const isIn = page !== null;
  for (const part of [nav, status, clock, who, signOut]) part.toggleAttribute("hidden", !isIn);
  signOut.toggleAttribute("hidden", !isIn || !session.needsKey);
  if (!isIn) return;
  const scopes = session.own.scopes.join(", ") || "nothing";
  put(who, el("span", { class: "key-name" }, session.own.name), el("small", {}, scopes));
  who.title = session.own.expires_at
    ? `Key ${session.own.key_id}, until ${session.own.expires_at}`
    : `Key ${session.own.key_id}`;
  const views = [
    session.may("read") && ["network", "Network"],
    session.may("admin") && session.may("read") && ["retrain", "Retrain"],
    (session.may("read") || session.may("ingest")) && ["data", "Data"],
  ];
  put(
    nav,
    ...views.filter(Boolean).map(([name, label]) => el("a", { href: addressOf([name]), "data-view": name }, label)),
  );
}

function showLive() {
  if (!page) return;
  const { live } = page;
  status.className = `live ${live.state}`;
  status.textContent = session.may("read") ? LIVE_WORDS[live.state] : "";
  const isStale = live.state === "stale";
  if (isStale && staleBar.hidden) {
    const since = clockTime(live.lastAnswer, ownZone());
    staleBar.textContent =
      `The service has not answered since ${since}. ` + "What is shown may be old; the page tries again by itself.";
  }
  staleBar.hidden = !isStale;
  document.body.classList.toggle("is-stale", isStale);
}

/** Show the time of day in the zone of most links. */
function showClock() {
  clock.hidden = !page?.city.loaded;
  if (!page || clock.hidden) return;
  const { zone } = page.city;
  const text = `${clockTime(Date.now(), zone)} ${zoneName(zone, Date.now())}`;
  if (clock.textContent !== text) clock.textContent = text;
}

/** @param {View} next */
function show(next, takesFocus = false) {
  view?.close();
  view = next;
  put(main, next.root);
  document.title = next.title === "Sign in" ? "Flowcast" : `${next.title} · Flowcast`;
  if (takesFocus) {
    scrollTo(0, 0);
    next.heading.focus({ preventScroll: true });
  }
}

/** Show the view of the address. */
function go(takesFocus = false) {
  if (!page) return;
  const where = place();
  const [name = "network", id] = where.parts;
  for (const link of nav.children) {
    const isHere = link.dataset.view === name || (name === "links" && link.dataset.view === "network");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    show(viewOf(name, id, where), takesFocus);
  } catch (problem) {
    show(plain("Flowcast", failed(problem)), takesFocus);
  }
}

function viewOf(name, id, where) {
  if (name === "data" && !id) return dataView(page);
  if (!session.may("read")) return plain("Flowcast", notAllowed("read", "look at links, counts and forecasts"));
  if (name === "network") return networkView(page, where);
  if (name === "links" && id) return linkView(page, id, where);
  if (name === "data") return linkDataView(page, id, where);
  if (name === "retrain") {
    if (!session.may("admin")) return plain("Retrain", notAllowed("admin", "retrain links"));
    return id ? runView(page, id) : retrainView(page, where);
  }
  return plain("Not here", empty("There is no such view", el("a", { href: "#/network" }, "To the network")));
}

/** @returns {View} */
function plain(title, content) {
  const heading = el("h1", { tabindex: "-1" }, title);
  return { root: el("div", {}, heading, content), heading, title, close: () => {} };
}

api.addEventListener("refused", (/** @type {CustomEvent} */ event) => {
  if (page) leave(`Signed out: ${event.detail.message}.`);
});
setInterval(showClock, 1000);
addEventListener("hashchange", () => {
  go(true);
  if (session.may("read")) page?.live.hurry();
});

if (session.needsKey && !session.key) leave();
else {
  showHeader();
  enter().catch((problem) => {
    if (problem.status === 401) leave("The key of this session is no longer valid.");
    else
      show(
        plain(
          "Flowcast",
          failed(problem, () => location.reload()),
        ),
      );
  });
}
