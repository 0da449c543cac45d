"""Execute a retrain run: train its links, and register, compare and activate each of them as it comes."""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from app.core.errors import Problem
from app.links.queries import PROFILE_WON, LinkInfo, set_choice
from app.links.tables import folder_name
from app.registry.activate import activate
from app.registry.cleanup import remove_old_versions, training_folder
from app.registry.queries import active_model
from app.registry.register import note_decision, register_model
from app.registry.store import StoreUnreachable
from app.training.compare import decide, decide_refreshed, summary
from app.training.network_stage import BEST
from app.training.queries import OPEN_LINK, close_links, is_open, release_run, set_link, tally
from app.training.run_context import RunContext, RunLost
from app.training.tables import RetrainRun
from app.training.train_links import LinkOutcome
from app.training.train_run import train_run

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
            _register(session, context, link, outcome.about, folder, now)
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
    session: Session, context: RunContext, link: LinkInfo, about: dict[str, Any], folder: Path, now: datetime
) -> None:
    run, figures = context.run, summary(about["held_out"])
    served = active_model(session, link.link_key) is not None
    if context.refreshes:
        decision = decide_refreshed(about, run.activate)
    else:
        young = bool(about.get("young")) and not served
        margin = context.settings.retrain_margin
        decision = decide(about["held_out"], run.activate, margin, served=served, young=young)
    version = register_model(session, context.store, link, folder / folder_name(link.link_id)).version
    outcome = "refused"
    if decision.activate:
        outcome, by = "activated", f"run {run.id}, {run.requested_by}"
        activate(session, context.store, link, version, by=by, reason=decision.reason, figures=figures, now=now)
    note_decision(session, link.link_key, version, run.id, outcome, decision.reason)
    if decision.profile_won and not served and run.algorithm == BEST:
        set_choice(session, link.link_key, PROFILE_WON)
        outcome = "profile"
    values = {"state": "done", "outcome": outcome, "reason": decision.reason, "finished_at": now}
    set_link(session, run.id, link.link_key, figures=figures, version=version, **values)
    remove_old_versions(session, context.store, link.link_key, context.settings.keep_retired)


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
