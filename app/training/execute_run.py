"""Execute a retrain run: train its links, and register, compare and activate each of them as it comes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from app.core.errors import Problem
from app.links.queries import PROFILE_WON, LinkInfo, set_choice
from app.registry.activate import activate
from app.registry.cleanup import remove_old_versions, training_folder
from app.registry.ensembles import has_ensemble, start_aggregation
from app.registry.queries import active_rows
from app.registry.register import note_decision, register_model
from app.registry.store import StoreUnreachable
from app.training.compare import (
    BEFORE,
    ENSEMBLE,
    Decision,
    aggregate_name,
    best_without_candidates,
    decide,
    decide_experts,
    decide_refreshed,
    summary,
)
from app.training.link_training import algorithm_of
from app.training.network_stage import BEST
from app.training.queries import OPEN_LINK, close_links, is_open, release_run, set_link, tally
from app.training.run_context import RunContext, RunLost
from app.training.tables import RetrainRun
from app.training.train_links import LinkOutcome
from app.training.train_run import train_run

_OUTCOMES = {True: "activated", False: "refused"}

log = logging.getLogger("flowcast.retrain")


def execute_run(context: RunContext) -> str:
    """Train what is left of a run; return the state it ended in."""
    with (
        training_folder(context.store, context.run.id) as folder,
        closing(train_run(context, folder)) as trained,  # ends the training also after an exception
    ):
        for outcome, link in trained:
            register_outcome(context, link, outcome, folder)
    return _finish(context)


def register_outcome(context: RunContext, link: LinkInfo, outcome: LinkOutcome, folder: Path) -> None:
    """Register, compare and perhaps activate what was trained, all in one transaction.

    What cannot be registered is that link's failure and no other's.
    """
    try:
        with context.lease() as (session, now):
            if not is_open(session, context.run.id, link.link_key):
                return  # deleted while it was trained
            if outcome.about is None:
                _fail(session, context, link, outcome.reason, now)
                return
            _register(session, context, link, outcome, folder, now)
    except (Problem, OSError) as problem:
        log.warning("not registered", exc_info=problem, extra={"run": context.run.id, "link": link.link_id})
        plain = isinstance(problem, Problem | StoreUnreachable)
        reason = f"{problem}" if plain else f"{type(problem).__name__}: {problem}"
        with context.lease() as (session, now):
            _fail(session, context, link, f"it was trained and could not be registered: {reason}", now)
    else:
        facts = {"run": context.run.id, "link": link.link_id, "seconds": round(outcome.seconds, 2)}
        log.info("link retrained", extra=facts)


def _register(
    session: Session, context: RunContext, link: LinkInfo, outcome: LinkOutcome, folder: Path, now: datetime
) -> None:
    """Register the candidates of a link, and activate those that are to be."""
    run, settings, about = context.run, context.settings, outcome.about
    assert about is not None
    abouts, held_out = {algorithm_of(about): about} | outcome.others, about["held_out"]
    if outcome.starts:
        held_out = held_out | {"candidate": held_out[ENSEMBLE]}
    figures = summary(held_out)
    has_active = bool(active_rows(session, link.link_key))
    decisions = _decide(context, abouts, held_out, has_active=has_active, experts=bool(outcome.starts))
    activated = [algorithm for algorithm, decision in decisions.items() if decision.activate]
    start = outcome.starts.get(aggregate_name(activated, abouts))
    versions, reasons = {}, []
    for algorithm, artifact in outcome.artifacts(folder).items():
        decision = decisions[algorithm]
        versions[algorithm] = version = register_model(session, context.store, link, artifact).version
        if decision.activate:
            by, reason = f"run {run.id}, {run.requested_by}", decision.reason
            activate(session, context.store, link, version, by=by, reason=reason, figures=figures, start=start, now=now)
        note_decision(session, link.link_key, version, run.id, _OUTCOMES[decision.activate], decision.reason)
        reasons.append(f"version {version}, {algorithm}: {decision.reason}" if len(abouts) > 1 else decision.reason)
    done = _OUTCOMES[bool(activated)]
    if not activated and run.activate == "if_better" and run.algorithm == BEST:
        best, aggregates = best_without_candidates(held_out), has_ensemble(session, link.link_key)
        if best == BEFORE and not aggregates:
            start_aggregation(session, link, outcome.starts[BEFORE])
            reasons.append("the aggregate of the experts that the link has forecasts it from now on")
        elif best == "profile" and not aggregates and not has_active:
            set_choice(session, link.link_key, PROFILE_WON)
            done = "profile"
    version = versions[next(iter(activated or versions))]
    values = {"state": "done", "outcome": done, "reason": "; ".join(reasons), "finished_at": now}
    set_link(session, run.id, link.link_key, figures=figures, version=version, versions=versions, **values)
    remove_old_versions(session, context.store, link.link_key, settings.keep_retired)


def _decide(
    context: RunContext,
    abouts: Mapping[str, dict[str, Any]],
    held_out: dict[str, Any],
    *,
    has_active: bool,
    experts: bool,
) -> dict[str, Decision]:
    """Decide about the candidates of a link, by algorithm."""
    mode, margin = context.run.activate, context.settings.retrain_margin
    (algorithm, about), *_ = abouts.items()
    young = bool(about.get("young")) and not has_active
    if context.refreshes:
        return {algorithm: decide_refreshed(about, mode)}
    if experts:
        return decide_experts(held_out, abouts, mode, margin, young=young)
    return {algorithm: decide(held_out, mode, margin, served=has_active, young=young)}


def _fail(session: Session, context: RunContext, link: LinkInfo, reason: str, now: datetime) -> None:
    values = {"state": "failed", "outcome": "failed", "reason": reason, "finished_at": now}
    set_link(session, context.run.id, link.link_key, **values)


def _finish(context: RunContext) -> str:
    """Close a run, or release it where links are left, so that the next worker claims it at once."""
    with context.lease() as (session, now):
        run = session.get_one(RetrainRun, context.run.id)
        states = tally(session, [run.id]).get(run.id, {})
        if run.cancel_requested:
            close_links(session, run.id, "cancelled", "the run was cancelled", now)
            run.state = "cancelled"
        elif states.keys() & set(OPEN_LINK):
            release_run(session, run.id)
            return "released"
        else:
            run.state = "failed" if set(states) == {"failed"} else "succeeded"
        run.finished_at = now
        return run.state


def fail_run(context: RunContext, reason: str) -> None:
    """End a run that failed as a whole, unless another worker has taken it."""
    with suppress(RunLost), context.lease() as (session, now):
        run = session.get_one(RetrainRun, context.run.id)
        run.state, run.detail, run.finished_at = "failed", reason, now
        close_links(session, run.id, "failed", reason, now)
