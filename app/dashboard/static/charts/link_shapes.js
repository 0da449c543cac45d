/** Links as shapes on a map: lines with a direction, and approaches around the junction that they lead to. */

const DIRECTIONS = { n: 0, ne: 45, e: 90, se: 135, s: 180, sw: 225, w: 270, nw: 315 };
const WORDS = { north: "n", east: "e", south: "s", west: "w" };
const SAME_SITE = 0.005; // degrees, some 500 m, within which the detectors of a junction lie
const SAME_PLACE = 0.00005; // degrees, some 5 m, within which detectors are at one place

/**
 * @typedef {[number, number]} LatLng
 * @typedef {{id: string, lines: LatLng[][], at: LatLng, bearing: number | null}} Shape `lines` is empty for an approach,
 *   which lies at `bearing` degrees from `at`, or at it
 */

/**
 * Return the shapes of the links that have a place.
 * @param {{id: string, link: any}[]} rows
 * @returns {Shape[]}
 */
export function shapesOf(rows) {
  const shapes = [];
  const sites = new Map();
  for (const { id, link } of rows) {
    if (!link.geometry) continue;
    const lines = linesOf(link.geometry).map((line) => line.map(([lon, lat]) => /** @type {LatLng} */ ([lat, lon])));
    const drawn = lines.filter((line) => line.length > 1);
    const at = lines[0]?.[0];
    if (!at) continue;
    if (drawn.length) {
      shapes.push({ id, lines: drawn, at, bearing: null });
      continue;
    }
    const site = siteOf(id, at, sites);
    site.push({ id, at, bearing: bearingIn(`${link.name ?? ""}`) });
  }
  for (const site of sites.values()) shapes.push(...around(site));
  return shapes;
}

/** Return the approaches of the junction that a detector belongs to: those of its site, or at its place. */
function siteOf(id, at, sites) {
  const dash = id.lastIndexOf("-");
  const names = [dash > 0 ? `site ${id.slice(0, dash)}` : null, `place ${at.map((degrees) => degrees.toFixed(4))}`];
  for (const name of names) {
    if (name === null) continue;
    const found = sites.get(name);
    if (!found) {
      sites.set(name, []);
      return sites.get(name);
    }
    if (distance(found[0].at, at) <= SAME_SITE) return found;
  }
  throw new Error("a place is near itself");
}

/** Return the approaches of a junction, each with its direction: from its place, its name, or what is left, evenly. */
function around(site) {
  const at = mean(site.map((one) => one.at));
  const isSpread = site.some((one) => distance(one.at, at) > SAME_PLACE);
  const known = site.map((one) => (isSpread && distance(one.at, at) > SAME_PLACE ? bearingOf(at, one.at) : one.bearing));
  const free = [...Array(8).keys()].map((i) => i * 45).filter((angle) => !known.some((one) => near(one, angle)));
  const left = known.filter((one) => one === null).length;
  let used = 0;
  return site.map(({ id }, i) => {
    let bearing = known[i];
    if (bearing === null && site.length > 1) bearing = free[Math.floor((used++ * free.length) / left)] ?? 0;
    return { id, lines: [], at, bearing };
  });
}

const near = (bearing, angle) => bearing !== null && Math.abs(((bearing - angle + 540) % 360) - 180) < 22.5;

/** Return the direction that a name tells, such as that of "WARRIGAL_RD N of TOORAK_RD". */
export function bearingIn(name) {
  const found = /(?:^|[^a-z])(north|south|east|west|[ns][ew]?|[ew])[\s_]+of(?![a-z])/i.exec(name);
  if (!found) return null;
  const word = found[1].toLowerCase();
  return DIRECTIONS[WORDS[word] ?? word] ?? null;
}

function bearingOf(from, to) {
  const narrow = Math.cos((from[0] * Math.PI) / 180);
  const degrees = (Math.atan2((to[1] - from[1]) * narrow, to[0] - from[0]) * 180) / Math.PI;
  return (degrees + 360) % 360;
}

const distance = (a, b) => Math.max(Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1]));

/** @returns {LatLng} */
const mean = (places) => [0, 1].map((i) => places.reduce((sum, at) => sum + at[i], 0) / places.length);

/** Return a geometry as lines; a point is a line of one. */
function linesOf({ type, coordinates }) {
  switch (type) {
    case "Point":
      return [[coordinates]];
    case "MultiPoint":
      return coordinates.slice(0, 1).map((point) => [point]);
    case "LineString":
      return [coordinates];
    case "MultiPolygon":
      return coordinates.flat();
    default:
      return coordinates;
  }
}
