/** The columns of a run's table, and the decisions on its candidates. */

import { el } from "../dom.js";
import { NOTHING, number, percent, signed } from "../formats.js";
import { addressOf } from "../router.js";
import { activateVersion } from "./link_models.js";

export const gain = (link) => {
  const [candidate, active] = [link.figures?.candidate?.rmse, link.figures?.active?.rmse];
  return candidate === undefined || candidate === null || !active ? 0 : 1 - candidate / active;
};
/** Return whether a link's candidate forecasts: of an ensemble any version may have the largest weight. */
const isActive = (link, active) =>
  link.figures?.ENSEMBLE ? link.outcome === "activated" : link.version !== null && active === link.version;
export const canAccept = (link, active) => link.state === "done" && link.version !== null && !isActive(link, active);
const canRefuse = (link, active) =>
  link.state === "done" && isActive(link, active) && Boolean(link.figures?.active) && !link.figures?.ENSEMBLE;

/** Activate the candidates of a link. */
export async function accept(api, link, reason) {
  for (const version of Object.values(link.versions ?? { candidate: link.version }))
    await activateVersion(api, link.link_id, version, reason);
}

export async function versionBefore(api, link) {
  const { activations } = await api.get(`v1/admin/links/${encodeURIComponent(link.link_id)}/activations?limit=100`);
  const before = activations.find((one) => one.version === link.version)?.previous_version;
  if (!before) throw new Error("no version was active before it");
  return before;
}

export function runColumns(city, activeVersion, decide) {
  const rmse = (who) => (link) => link.figures?.[who]?.rmse ?? null;
  return [
    {
      name: "link",
      label: "Link",
      value: (link) => link.link_id,
      text: (link) => `${link.link_id} ${city.links.get(link.link_id)?.name}`,
      cell: (link) =>
        el(
          "a",
          { href: addressOf(["links", link.link_id]) },
          el("span", { class: "id" }, link.link_id),
          el("span", { class: "name" }, city.links.get(link.link_id)?.name ?? ""),
        ),
    },
    {
      name: "state",
      label: "State",
      value: (link) => link.state,
      cell: (link) => el("span", { class: `state ${link.state}` }, link.state),
    },
    {
      name: "candidate_rmse",
      label: "Candidate RMSE",
      numeric: true,
      value: rmse("candidate"),
      text: (link) => number(rmse("candidate")(link), 2),
    },
    {
      name: "active_rmse",
      label: "Active RMSE",
      numeric: true,
      value: rmse("active"),
      text: (link) => number(rmse("active")(link), 2),
    },
    {
      name: "gain",
      label: "Change",
      title: "Of the RMSE against the active model; less is better",
      numeric: true,
      value: (link) => (link.figures?.active ? -gain(link) : null),
      text: (link) => (link.figures?.active && link.figures?.candidate ? `${signed(-100 * gain(link), 1)} %` : NOTHING),
    },
    {
      name: "candidate_mare",
      label: "Candidate MARE",
      numeric: true,
      value: (link) => link.figures?.candidate?.mare ?? null,
      text: (link) => percent(link.figures?.candidate?.mare, 1),
    },
    {
      name: "active_mare",
      label: "Active MARE",
      numeric: true,
      value: (link) => link.figures?.active?.mare ?? null,
      text: (link) => percent(link.figures?.active?.mare, 1),
    },
    {
      name: "profile_rmse",
      label: "Profile RMSE",
      numeric: true,
      value: rmse("profile"),
      text: (link) => number(rmse("profile")(link), 2),
    },
    {
      name: "outcome",
      label: "Outcome",
      value: (link) => link.outcome,
      text: (link) => `${link.outcome} ${link.reason} ${link.version}`,
      cell: (link) =>
        el(
          "span",
          { class: "wrap" },
          link.outcome === "profile"
            ? `profile chosen: it won on held-out days; v${link.version}: ${link.reason}`
            : link.outcome
              ? `${link.version ? `v${link.version} ` : ""}${link.outcome}: ${link.reason ?? ""}`
              : NOTHING,
        ),
    },
    {
      name: "active_version",
      label: "Decide",
      value: activeVersion,
      text: (link) => `${link.state} ${activeVersion(link)} ${link.version}`,
      cell: (link) => {
        const active = activeVersion(link);
        if (canAccept(link, active)) return act(link, "Accept", decide);
        if (canRefuse(link, active)) return act(link, "Refuse", decide);
        return link.state === "done" && isActive(link, active) ? "active" : NOTHING;
      },
    },
  ];
}

const act = (link, name, decide) =>
  el(
    "button",
    {
      type: "button",
      "aria-label": `${name} version ${link.version} of ${link.link_id}`,
      on: { click: () => decide(link, name) },
    },
    name,
  );
