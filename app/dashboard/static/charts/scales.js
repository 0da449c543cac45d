/** Scales from values to pixels, and their ticks. */

import { clockTime, dayName, localHour } from "../formats.js";

const HOUR = 3_600_000;

/** @param {[number, number]} from @param {[number, number]} to */
export function linear([low, high], [start, end]) {
  const width = high - low || 1;
  return (value) => start + ((value - low) / width) * (end - start);
}

/** Round numbers up to just past `most`. @param {number} most */
export function ticks(most, about = 4) {
  if (!(most > 0)) return [0, 1];
  const rough = most / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? rough;
  const found = [];
  for (let value = 0; value < most + step; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

/**
 * Return full hours by the link's clock, or days, as many as fit.
 * @param {number} from @param {number} to @param {string} zone @param {number} most
 * @returns {{at: number, label: string, isDay: boolean}[]}
 */
export function timeTicks(from, to, zone, most) {
  const hours = (to - from) / HOUR;
  const step = [1, 2, 3, 6, 12, 24, 48, 168].find((one) => hours / one <= most) ?? 336;
  const found = [];
  const first = Math.ceil(from / (HOUR / 4)) * (HOUR / 4); // zones are off by quarters of an hour at most
  let days = -1;
  for (let at = first; at <= to; at += HOUR / 4) {
    const hour = localHour(at, zone);
    if (step >= 24) {
      if (hour !== 0) continue;
      days += 1;
      if (days % (step / 24) === 0) found.push({ at, label: dayName(at, zone), isDay: true });
    } else if (hour % step === 0) {
      found.push({ at, label: hour === 0 ? dayName(at, zone) : clockTime(at, zone), isDay: hour === 0 });
    }
  }
  return found;
}
