/** A link's trained models: held-out figures, activation, rollback, and their history. */

import { confirm } from "../dialog.js";
import { el, put } from "../dom.js";
import { panel } from "../figure.js";
import { fullTime, NOTHING, number, percent } from "../formats.js";
import { notify } from "../notices.js";
import { addressOf } from "../router.js";
import { empty, failed, loading } from "../states.js";

// Methods compared on the held-out days, in this order; others follow by name.
const OTHERS = ["active", "ENSEMBLE", "NETWORK", "base", "KR_SML", "KR", "profile", "last_week"];
const OTHER_NAMES = {
  active: "what was active",
  base: "linear base",
  last_week: "last week",
  "ENSEMBLE before": "ENSEMBLE without new experts",
};

/** What forecasts the link, where that is not the version that was activated last. */
const CHOICES = {
  ensemble: "The active experts forecast together, with the profile and the last counts.",
  profile: "Profile chosen: it won on held-out days.",
  withdrawn: "The models were withdrawn; forecasts come from the profile until a version is activated.",
};

/** Return the methods that the models were compared with. */
function othersOf(models) {
  const found = new Set(models.flatMap((one) => Object.keys(one.held_out)));
  found.delete("candidate");
  const place = (name) => (OTHERS.includes(name) ? OTHERS.indexOf(name) : OTHERS.length);
  return [...found].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
}

export class LinkModels {
  /** @param {import("../main.js").Page} page @param {string} id @param {() => void} onChange */
  constructor(page, id, onChange) {
    this.page = page;
    this.id = id;
    this.onChange = onChange;
    this.models = [];
    this.hasEnsemble = false;
    this.zone = "UTC";
    this.isAdmin = page.session.may("admin");
    this.place = el("div");
    this.past = el("div");
    const history =
      this.isAdmin &&
      el(
        "details",
        { class: "as-table", on: { toggle: (event) => event.target.open && this.#showHistory() } },
        el("summary", {}, "History of activations"),
        this.past,
      );
    const table = () => ({
      name: `${id} models`,
      columns: [
        "version",
        "state",
        "algorithm",
        "rank",
        "trained_from",
        "trained_to",
        "rmse",
        "mare",
        ...othersOf(this.models).map((name) => `rmse_${name}`),
        "outcome",
        "reason",
      ],
      rows: this.models.map((one) => [
        one.version,
        one.state,
        one.algorithm,
        one.rank,
        one.trained_from,
        one.trained_to,
        one.held_out.candidate?.rmse ?? null,
        one.held_out.candidate?.mare ?? null,
        ...othersOf(this.models).map((name) => one.held_out[name]?.rmse ?? null),
        one.decision?.outcome ?? null,
        one.decision?.reason ?? null,
      ]),
    });
    this.element = panel(
      { title: "Trained models", kind: "wide", note: "figures on held-out days, one slot ahead", table },
      this.place,
      history,
    );
  }

  /** @param {any} registry @param {string} zone */
  show({ models, choice }, zone) {
    const now = JSON.stringify([models, choice, zone]);
    if (now === this.shown) return; // buttons keep the focus
    this.shown = now;
    this.models = models;
    this.hasEnsemble = choice === "ensemble";
    this.zone = zone;
    if (!models.length) {
      put(
        this.place,
        empty(
          "No trained model",
          "The profile or the last count forecasts until one is trained.",
          this.isAdmin &&
            el("a", { class: "button", href: addressOf(["retrain"], { links: this.id }) }, "Retrain this link"),
        ),
      );
      return;
    }
    const names = [
      ["Version"],
      ["State"],
      ...(this.isAdmin ? [["Action"]] : []),
      ["Algorithm"],
      ["RMSE", 1],
      ["MARE", 1],
      ...othersOf(models).map((name, i) => [`${i ? "" : "RMSE "}of ${OTHER_NAMES[name] ?? name}`, 1]),
      ["Rank", 1],
      ["Trained on", 0],
      ["Decision", 0],
    ];
    put(
      this.place,
      choice && el("p", {}, CHOICES[choice]),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Trained models" },
        el(
          "table",
          {},
          el("caption", { class: "visually-hidden" }, "Trained models, the newest first"),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              ...names.map(([name, isNumber]) => el("th", { scope: "col", class: isNumber ? "number" : null }, name)),
            ),
          ),
          el("tbody", {}, ...models.map((one) => this.#row(one))),
        ),
      ),
      this.isAdmin && el("p", {}, el("a", { href: addressOf(["retrain"], { links: this.id }) }, "Retrain this link")),
    );
  }

  #row(one) {
    const held = (method, name) => one.held_out[method]?.[name] ?? null;
    return el(
      "tr",
      { class: one.state },
      el("th", { scope: "row" }, `v${one.version}`),
      el(
        "td",
        {},
        el(
          "span",
          { class: `state ${one.damaged ? "stale" : one.state}`, title: one.damaged ?? "" },
          one.damaged ? "damaged" : one.state === "active" && !one.serving ? "active, not used" : one.state,
        ),
      ),
      this.isAdmin && el("td", {}, one.serving ? this.#withdraw(one) : !one.damaged && this.#button(one)),
      el("td", {}, one.algorithm, one.expert && ", expert"),
      el("td", { class: "number" }, number(held("candidate", "rmse"), 1)),
      el("td", { class: "number" }, percent(held("candidate", "mare"), 1)),
      ...othersOf(this.models).map((name) => el("td", { class: "number" }, number(held(name, "rmse"), 1))),
      el("td", { class: "number" }, String(one.rank)),
      el(
        "td",
        {},
        `${fullTime(one.trained_from, this.zone).split(",")[0]} – ${fullTime(one.trained_to, this.zone).split(",")[0]}`,
      ),
      el(
        "td",
        { class: "wrap" },
        one.decision ? `${one.decision.outcome} in run ${one.decision.run_id}: ${one.decision.reason}` : NOTHING,
      ),
    );
  }

  #button(one) {
    const isBack = one.state !== "candidate";
    const act = isBack ? "Roll back" : "Activate";
    return el(
      "button",
      { type: "button", "aria-label": `${act} version ${one.version}`, on: { click: () => this.#activate(one, act) } },
      act,
    );
  }

  #withdraw(one) {
    const withdraw = async () => {
      const answer = await confirm({
        title: `Withdraw version ${one.version}?`,
        act: "Withdraw",
        reason: true,
        text: this.hasEnsemble
          ? `The other experts of ${this.id} go on without it.`
          : `Forecasts of ${this.id} will come from its profile until a version is activated.`,
      });
      if (!answer) return;
      try {
        const path = `v1/admin/links/${encodeURIComponent(this.id)}/models/deactivate`;
        const which = this.hasEnsemble ? { algorithm: one.algorithm } : {}; // whatever else is active would forecast
        await this.page.api.send("POST", path, answer.reason ? { ...which, reason: answer.reason } : which);
        notify(`Version ${one.version} of ${this.id} is withdrawn.`);
      } catch (problem) {
        notify(`Version ${one.version} stays active: ${problem.message}`, "bad");
      }
      this.onChange();
    };
    const label = `Withdraw version ${one.version}`;
    return el("button", { type: "button", "aria-label": label, on: { click: withdraw } }, "Withdraw");
  }

  async #activate(one, act) {
    const replaced = (other) => other.serving && (!one.expert || other.algorithm === one.algorithm);
    const active = this.models.find(replaced);
    const answer = await confirm({
      title: `${act === "Activate" ? "Activate" : "Roll back to"} version ${one.version}?`,
      act,
      reason: true,
      text:
        `Forecasts of ${this.id} will ${one.expert ? "use expert" : "come from"} version ${one.version} (held-out RMSE ${number(one.held_out.candidate?.rmse, 1)})` +
        (active ? ` instead of version ${active.version} (${number(active.held_out.candidate?.rmse, 1)}).` : "."),
    });
    if (!answer) return;
    try {
      await activateVersion(this.page.api, this.id, one.version, answer.reason);
      notify(`Version ${one.version} of ${this.id} is active.`);
    } catch (problem) {
      notify(`Version ${one.version} was not activated: ${problem.message}`, "bad");
    }
    this.onChange();
  }

  async #showHistory() {
    put(this.past, loading());
    try {
      const { activations } = await this.page.api.get(
        `v1/admin/links/${encodeURIComponent(this.id)}/activations?limit=50`,
      );
      put(
        this.past,
        activations.length
          ? el(
              "ol",
              { class: "history" },
              ...activations.map((one) =>
                el(
                  "li",
                  {},
                  el("strong", {}, one.version === null ? "withdrawn" : `v${one.version}`),
                  one.previous_version ? ` after v${one.previous_version}` : "",
                  ` · ${fullTime(one.activated_at, this.zone)} · by ${one.activated_by}`,
                  one.reason ? ` · ${one.reason}` : "",
                ),
              ),
            )
          : empty("Nothing was activated yet"),
      );
    } catch (problem) {
      put(this.past, failed(problem));
    }
  }
}

/** @param {import("../api.js").Api} api */
export const activateVersion = (api, id, version, reason) =>
  api.send("POST", `v1/admin/links/${encodeURIComponent(id)}/models/${version}/activate`, reason ? { reason } : {});
