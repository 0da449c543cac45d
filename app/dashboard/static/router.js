/** The view, in the part of the address after #, so that every view can be shared. */

/** @typedef {{parts: string[], query: URLSearchParams}} Place */

/** @returns {Place} */
export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query ?? "") };
}

/** The address of a view. @param {string[]} parts @param {Record<string, any>} [query] */
export function addressOf(parts, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const asked = new URLSearchParams(wanted.map(([name, value]) => [name, String(value)])).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${asked ? `?${asked}` : ""}`;
}

/** Store the state of the view in the address, without changing the view. */
export function note(parts, query) {
  history.replaceState(null, "", addressOf(parts, query));
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a stray % in a pasted address
  }
}
