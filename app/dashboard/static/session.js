/** The session: a key, kept for this tab only, and its scopes. */

const STORED = "flowcast.key";

/** @typedef {{key_id: string, name: string, scopes: string[], expires_at: string | null}} OwnKey */

export class Session {
  constructor() {
    /** @type {OwnKey | null} */
    this.own = null;
    this.needsKey = document.querySelector('meta[name="flowcast-keys"]')?.getAttribute("content") !== "off";
  }

  /** The key itself; null where none is stored. */
  get key() {
    return sessionStorage.getItem(STORED);
  }

  /** @param {string} key */
  keep(key) {
    sessionStorage.setItem(STORED, key);
  }

  forget() {
    sessionStorage.removeItem(STORED);
    this.own = null;
  }

  /** @param {"read" | "ingest" | "admin"} scope */
  may(scope) {
    return this.own?.scopes.includes(scope) ?? false;
  }
}
