/** Numbers and times as they are shown. Times are in the zone of the link they belong to. */

export const NOTHING = "–";
const formatters = new Map();

/** @param {number | null | undefined} value @param {number} [decimals] */
export function number(value, decimals = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** Format a difference with its sign. */
export function signed(value, decimals = 0) {
  const text = number(value, decimals);
  return text === NOTHING || text.startsWith("−") || Number(text) === 0 ? text : `+${text}`;
}

/** @param {number | null | undefined} share */
export function percent(share, decimals = 0) {
  const text = number(share === null || share === undefined ? null : share * 100, decimals);
  return text === NOTHING ? text : `${text} %`;
}

/** How long something has been, in two units at most. @param {number | null | undefined} seconds */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${Math.floor(hours / 24)} d`;
}

/** "1 slot", "2 slots" @param {number} n @param {string} word */
export const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** The method of a forecast, and its version; an ensemble, the profile and the last count have none. @param {any} forecast */
export function methodName(forecast, versionWord = "v") {
  const isTrained = forecast.model_version && !["ENSEMBLE", "profile", "last_count"].includes(forecast.method);
  return `${forecast.method}${isTrained ? ` ${versionWord}${forecast.model_version}` : ""}`;
}

/** @param {number} bytes */
export function size(bytes) {
  return bytes < 1e5 ? `${number(bytes / 1e3, 1)} kB` : `${number(bytes / 1e6, 1)} MB`;
}

/** "08:15" @param {string | number | Date} instant @param {string} zone */
export const clockTime = (instant, zone) => format(instant, zone, { hour: "2-digit", minute: "2-digit" });

/** "Fri 26 Sep" */
export const dayName = (instant, zone) => format(instant, zone, { weekday: "short", day: "numeric", month: "short" });

/** "Fri 26 Sep 08:15" */
export const dayTime = (instant, zone) => `${dayName(instant, zone)} ${clockTime(instant, zone)}`;

/** "26 Sep 2025, 08:15" */
export const fullTime = (instant, zone) =>
  `${format(instant, zone, { day: "numeric", month: "short", year: "numeric" })}, ${clockTime(instant, zone)}`;

/** Return a zone with its offset at a moment: "Europe/Berlin, GMT+2". */
export function zoneName(zone, instant = Date.now()) {
  const parts = formatter(zone, { timeZoneName: "shortOffset" }).formatToParts(new Date(instant));
  const offset = parts.find((part) => part.type === "timeZoneName")?.value ?? "";
  return zone === "UTC" ? "UTC" : `${zone}, ${offset}`;
}

/** Return the browser's zone, for times that belong to no link. */
export const ownZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** Return the day by a zone's clock, as 2025-09-26. */
export const isoDay = (instant, zone) => {
  const parts = formatter(zone, { year: "numeric", month: "2-digit", day: "2-digit" }).formatToParts(new Date(instant));
  const of = (type) => parts.find((part) => part.type === type)?.value;
  return `${of("year")}-${of("month")}-${of("day")}`;
};

/** Return the hours since midnight by a zone's clock. */
export function localHour(instant, zone) {
  const parts = formatter(zone, { hour: "2-digit", minute: "2-digit" }).formatToParts(new Date(instant));
  const of = (type) => Number(parts.find((part) => part.type === type)?.value);
  return of("hour") + of("minute") / 60;
}

function format(instant, zone, options) {
  if (instant === null || instant === undefined) return NOTHING;
  return formatter(zone, options).format(new Date(instant)).replace(",", "");
}

function formatter(zone, options) {
  const name = zone + JSON.stringify(options);
  let found = formatters.get(name);
  if (!found) {
    found = new Intl.DateTimeFormat("en-GB", { timeZone: zone, hourCycle: "h23", ...options });
    formatters.set(name, found);
  }
  return found;
}
