/** Client of the REST API: JSON, problems as errors, uploads with progress, and event streams. */

import { readEvents } from "./event_stream.js";

/** A problem that the service returned (RFC 9457). */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `the service answered ${status}`);
    this.status = status;
    this.title = body?.title ?? `Error ${status}`;
    this.errors = body?.errors ?? [];
    this.requestId = body?.request_id ?? "";
  }
}

/** The service did not answer. */
export class NoAnswer extends Error {
  constructor() {
    super("the service does not answer");
  }
}

export const UNCHANGED = Symbol("unchanged");

/** Emits `contact` with whether the service answered, and `refused` when it no longer takes the key. */
export class Api extends EventTarget {
  /** @param {() => string | null} key */
  constructor(key) {
    super();
    this.key = key;
    this.tags = new Map();
    this.over = new AbortController();
  }

  /** Start sending requests after a sign-in. */
  begin() {
    this.tags.clear();
    this.over = new AbortController();
  }

  /** Stop sending requests after a sign-out. */
  end() {
    this.over.abort();
  }

  /** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
  async get(path, signal) {
    return read(await this.#ask("GET", path, { signal }));
  }

  /** Read what may not have changed; gives UNCHANGED then. @returns {Promise<any>} */
  async getIfChanged(path) {
    const tag = this.tags.get(path);
    const answer = await this.#ask("GET", path, { headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 304) return UNCHANGED;
    const body = await read(answer);
    const fresh = answer.headers.get("ETag");
    if (fresh) this.tags.set(path, fresh);
    return body;
  }

  /** Read every page of a list. @param {string} path @param {string} name of the list @returns {Promise<any>} */
  async getPages(path, name) {
    const page = await this.get(path);
    let cursor = page.next_cursor;
    while (cursor) {
      const next = await this.get(`${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`);
      page[name].push(...next[name]);
      cursor = next.next_cursor;
    }
    return page;
  }

  /** @returns {Promise<any>} */
  async send(method, path, body) {
    const headers = body === undefined ? {} : { "Content-Type": "application/json" };
    const answer = await this.#ask(method, path, {
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    return answer.status === 204 ? null : read(answer);
  }

  /**
   * Send a file as it is. Not with fetch, which does not report how much was sent.
   * @param {string} path @param {File} file @param {(share: number) => void} onProgress @returns {Promise<any>}
   */
  upload(path, file, onProgress) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("POST", address(path));
      for (const [name, value] of Object.entries(this.#headers())) request.setRequestHeader(name, value);
      request.setRequestHeader("Content-Type", "application/octet-stream");
      request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
      request.onerror = () => reject(new NoAnswer());
      request.onload = () => {
        const body = parsed(request.responseText);
        if (request.status >= 200 && request.status < 300) resolve(body);
        else reject(new Problem(request.status, body));
      };
      request.send(file);
    });
  }

  /**
   * Read a stream of events until it ends or `signal` is aborted.
   * @param {string} path @param {(name: string, data: any) => void} onEvent @param {AbortSignal} signal
   */
  async stream(path, onEvent, signal) {
    const answer = await this.#ask("GET", path, { headers: { Accept: "text/event-stream" }, signal });
    await readEvents(answer, onEvent);
  }

  #headers() {
    const key = this.key();
    return key ? { "X-API-Key": key } : {};
  }

  /** @param {{headers?: Record<string, string>, body?: string, signal?: AbortSignal}} [options] */
  async #ask(method, path, options = {}) {
    const { headers = {}, body } = options;
    const over = this.over.signal;
    const signal = options.signal ? AbortSignal.any([options.signal, over]) : over;
    let answer;
    try {
      answer = await fetch(address(path), {
        method,
        body,
        signal,
        headers: { ...this.#headers(), ...headers },
        cache: "no-store",
      });
    } catch (problem) {
      if (options.signal?.aborted) throw problem;
      if (over.aborted) throw new NoAnswer();
      this.#contact(false);
      throw new NoAnswer();
    }
    this.#contact(answer.status < 500);
    if (answer.ok || answer.status === 304) return answer;
    const problem = new Problem(answer.status, parsed(await answer.text().catch(() => "")));
    if (answer.status === 401) this.dispatchEvent(new CustomEvent("refused", { detail: problem }));
    throw problem;
  }

  #contact(answered) {
    this.dispatchEvent(new CustomEvent("contact", { detail: answered }));
  }
}

/** Addresses are relative to the page, which may lie below a prefix. */
const address = (path) => new URL(path.replace(/^\//, ""), document.baseURI);

/** Read an answer; half of one is none. @param {Response} answer */
async function read(answer) {
  try {
    return await answer.json();
  } catch {
    throw new NoAnswer();
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
