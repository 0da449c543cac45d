/** Keeps the page live: it reads again when an event of the stream arrives, and polls while there is no stream. */

const NEWS_SECONDS = 1; // looked at most this often, however many events come
const LIVE_SECONDS = 15; // what no event reports, such as a new link or a feed that grows old
const POLL_SECONDS = 5;
const LONGEST_WAIT = 15;

/** Resolves when the page is visible again. */
function seen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

/**
 * Emits `state` when the connection changes and `news` when something may be new.
 * States: connecting, live (by events), polling (without events), stale (no answer).
 */
export class Live extends EventTarget {
  /** @param {import("./api.js").Api} api @param {import("./city.js").City} city */
  constructor(api, city) {
    super();
    this.api = api;
    this.city = city;
    this.state = "connecting";
    this.lastAnswer = Date.now();
    this.streaming = false;
    this.stopped = new AbortController();
    this.planned = 0;
    this.lookedAt = 0;
    api.addEventListener("contact", this.#onContact);
    document.addEventListener("visibilitychange", this.#onVisible);
  }

  start() {
    this.#listen();
    this.#look();
    return this;
  }

  /** Refresh soon, because the view changed. */
  hurry() {
    this.#plan(0);
  }

  stop() {
    this.stopped.abort();
    this.stream?.abort();
    document.removeEventListener("visibilitychange", this.#onVisible);
    clearTimeout(this.planned);
    this.api.removeEventListener("contact", this.#onContact);
  }

  /** A hidden tab closes its stream: a browser has six connections for a host. */
  #onVisible = () => {
    if (document.hidden) this.stream?.abort();
    else this.#plan(0);
  };

  #onContact = (event) => {
    if (this.stopped.signal.aborted) return;
    if (event.detail) this.lastAnswer = Date.now();
    this.#become(event.detail ? (this.streaming ? "live" : "polling") : "stale");
  };

  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  async #listen() {
    const { signal } = this.stopped;
    let wait = 1;
    while (!signal.aborted) {
      await seen();
      if (signal.aborted) return;
      this.stream = new AbortController();
      try {
        await this.api.stream(
          "v1/events",
          (name) => {
            if (name === "ready") {
              this.streaming = true;
              wait = 1;
              this.#become("live");
            }
            this.#plan(0); // after "ready" as well: events may have been missed
          },
          this.stream.signal,
        );
      } catch {
        // The api has reported it already; it is tried again.
      }
      if (signal.aborted) return;
      this.streaming = false;
      if (document.hidden) continue;
      if (this.state === "live") this.#become("polling");
      this.#plan(0);
      await new Promise((resolve) => setTimeout(resolve, wait * 1000));
      wait = Math.min(2 * wait, LONGEST_WAIT);
    }
  }

  #plan(seconds) {
    const due = Math.max(this.lookedAt + NEWS_SECONDS * 1000, Date.now() + seconds * 1000);
    if (this.planned && this.due <= due) return;
    clearTimeout(this.planned);
    this.due = due;
    this.planned = setTimeout(() => this.#look(), due - Date.now());
  }

  async #look() {
    this.planned = 0;
    if (document.hidden) return; // refreshed when it is visible again
    this.lookedAt = Date.now();
    try {
      await this.city.refresh();
      this.dispatchEvent(new Event("news"));
    } catch {
      // The api has reported it; views show the last figures, and that they are old.
    }
    this.lookedAt = Date.now();
    if (this.stopped.signal.aborted) return;
    this.#plan(this.streaming ? LIVE_SECONDS : POLL_SECONDS);
    if (this.city.owesFigures) this.#plan((this.city.figuresDue - Date.now()) / 1000);
  }
}
