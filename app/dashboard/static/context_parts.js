/** The parts of a network model's context, in words. */

const WORDS = {
  usual: "profile of this time",
  lags: "latest counts",
  yesterday: "yesterday",
  last_week: "last week",
  profile: "profile of the slots around",
  deviations: "latest deviations",
  time_of_day: "time of day",
  day_type: "type of day",
  upstream: "upstream links",
  junction: "links of the junction",
  network: "whole network",
  offset: "constant",
  correction: "similar moments",
};

/** @param {string} part */
export const partName = (part) => (Object.hasOwn(WORDS, part) ? WORDS[part] : part.replaceAll("_", " "));
