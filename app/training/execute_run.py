"""Carry out a retrain run: read, train in parallel, register_model, compare, activate, link by link."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import datetime
from pathlib import Path

from sqlalchemy.orm import Session

from app.core.database import database_now, writing
from app.core.errors import Problem
from app.links.queries import PROFILE_WON, LinkInfo, set_choice
from app.links.tables import folder_name
from app.registry.activate import activate
from app.registry.cleanup import remove_old_versions
from app.registry.queries import active_model
from app.registry.register import note_decision, register_model
from app.registry.store import StoreAway
from app.registry.training_folder import training_folder
from app.training.compare import decide, decide_refreshed, summary
from app.training.heartbeat import Heartbeat
from app.training.link_training import LinkOutcome
from app.training.network_options import BEST
from app.training.queries import OPEN_LINK, close_links, is_open, put_down, renew_lease, set_link, tally
from app.training.tables import RetrainRun
from app.training.train_links import trained_links
from app.training.work import Work

log = logging.getLogger("flowcast.retrain")


class RunLost(Exception):
    """The run was given to another worker, because this one sent no heartbeat."""


def execute_run(work: Work, heartbeat: Heartbeat) -> str:
    """Train what is left of a run; give the state it ended in."""
    with (
        training_folder(work.store, work.run.id) as folder,
        closing(trained_links(work, heartbeat, folder)) as trained,  # whatever happens, training ends here
    ):
        for outcome, link in trained:
            settle(work, link, outcome, folder)
    return _finish(work)


def settle(work: Work, link: LinkInfo, outcome: LinkOutcome, folder: Path) -> None:
    """Settle a link; what cannot be registered is that link's failure and no other's."""
    try:
        _settle_whole(work, link, outcome, folder)
    except (Problem, OSError) as problem:
        log.warning("not registered", exc_info=problem, extra={"run": work.run.id, "link": link.link_id})
        plain = isinstance(problem, Problem | StoreAway)
        reason = (
            f"it was trained and could not be registered: {'' if plain else f'{type(problem).__name__}: '}{problem}"
        )
        with writing(work.engine) as session:
            now = database_now(session)
            _require_mine(session, work, now)
            _fail(session, work, link, reason, now)


def _settle_whole(work: Work, link: LinkInfo, outcome: LinkOutcome, folder: Path) -> None:
    """Register, compare and perhaps activate what was trained, all in one transaction."""
    with writing(work.engine) as session:
        now = database_now(session)
        _require_mine(session, work, now)
        if not is_open(session, work.run.id, link.link_key):
            return  # deleted while it was trained
        if outcome.about is None:
            _fail(session, work, link, outcome.reason, now)
            return
        _register(session, work, link, outcome, folder, now)
    log.info("link retrained", extra={"run": work.run.id, "link": link.link_id, "seconds": round(outcome.seconds, 2)})


def _register(session: Session, work: Work, link: LinkInfo, trained: LinkOutcome, folder: Path, now: datetime) -> None:
    assert trained.about is not None
    held_out = trained.about["held_out"]
    figures = summary(held_out)
    served = active_model(session, link.link_key) is not None
    young = bool(trained.about.get("young")) and not served
    decision = (
        decide_refreshed(trained.about, work.run.activate)
        if work.refreshes
        else decide(held_out, work.run.activate, work.settings.retrain_margin, young=young)
    )
    version = register_model(session, work.store, link, folder / folder_name(link.link_id)).version
    if decision.activate:
        by = f"run {work.run.id}, {work.run.requested_by}"
        activate(session, work.store, link, version, by=by, reason=decision.reason, figures=figures, now=now)
    outcome = "activated" if decision.activate else "refused"
    note_decision(session, link.link_key, version, work.run.id, outcome, decision.reason)
    if decision.profile_won and not served and work.run.algorithm == BEST:
        set_choice(session, link.link_key, PROFILE_WON)
        outcome = "profile"
    set_link(
        session,
        work.run.id,
        link.link_key,
        state="done",
        outcome=outcome,
        reason=decision.reason,
        figures=figures,
        version=version,
        finished_at=now,
    )
    remove_old_versions(session, work.store, link.link_key, work.settings.keep_retired)


def _fail(session: Session, work: Work, link: LinkInfo, reason: str, now: datetime) -> None:
    values = {"state": "failed", "outcome": "failed", "reason": reason, "finished_at": now}
    set_link(session, work.run.id, link.link_key, **values)


def _require_mine(session: Session, work: Work, now: datetime) -> None:
    if not renew_lease(session, work.run.id, work.worker, now):
        raise RunLost


def _finish(work: Work) -> str:
    """Close a run, or put it down where links are left, for the next worker to take up at once."""
    with writing(work.engine) as session:
        now = database_now(session)
        _require_mine(session, work, now)
        run = session.get_one(RetrainRun, work.run.id)
        if run.cancel_requested:
            close_links(session, work.run.id, "cancelled", "the run was cancelled", now)
            run.state, run.finished_at = "cancelled", now
            return run.state
        states = tally(session, [work.run.id]).get(work.run.id, {})
        if states.keys() & set(OPEN_LINK):
            put_down(session, work.run.id)
            return "put down"
        run.state, run.finished_at = "failed" if set(states) == {"failed"} else "succeeded", now
        return run.state
