"""Runs that nobody asked for: by the schedule, and where accuracy fell."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.accuracy.error_sums import ErrorSums, measures
from app.accuracy.queries import MODEL_VERSION, PART, Wanted, network_sums
from app.core.clock import Clock
from app.core.database import reading, writing
from app.core.errors import Conflict
from app.core.times import Span, last_cron_time
from app.counts.queries import newest_slot_end
from app.links.queries import LinkInfo, all_links
from app.registry.tables import ModelVersion
from app.settings import Settings
from app.training.queries import OPEN_LINK
from app.training.request import REFRESH, SCHEDULE, TRIGGER, Order, refreshable, request_run
from app.training.tables import RetrainLink, RetrainRun
from model.network_model.network import ALGORITHM as NETWORK

HORIZON = 1
LEAST_SCORED = 0.5  # share of the window's slots


class Fallen(NamedTuple):
    """A link whose realised RMSE exceeds what its active model had on held-out days."""

    link: LinkInfo
    realised: float
    held_out: float


def falling_links(session: Session, settings: Settings, cool_since: datetime) -> list[Fallen]:
    """Find links to retrain, by their active model's forecasts one slot ahead.

    Links that are in a run, or just out of one, rest.

    The window ends with the newest count of any link: a detector that stopped sending has too few
    scored slots in it, and is no reason to learn anything new.
    """
    end = newest_slot_end(session)
    promises = promises_of_active(session)
    resting = resting_links(session, cool_since)
    links = {
        link.link_key: link for link in all_links(session) if link.link_key in promises and link.link_key not in resting
    }
    if end is None or not links:
        return []
    span = Span(max(0, end - 3600 * settings.retrain_trigger_window_hours), end)
    found = network_sums(session, Wanted(span, HORIZON), settings.mare_min_count, by=(PART, MODEL_VERSION))
    fallen = []
    for key, link in sorted(links.items()):
        promise, slots = promises[key], len(span.slots(link.slot_seconds))
        errors = measures(found.get((key, promise.version), ErrorSums()), slots)
        rmse: float | None = errors["rmse"]
        enough = errors["n_used"] >= LEAST_SCORED * slots
        if enough and rmse is not None and rmse > settings.retrain_trigger * promise.rmse:
            fallen.append(Fallen(link, rmse, promise.rmse))
    return fallen


HELD_OUT_RMSE = ("held_out", "candidate", "rmse", "value")


class Promise(NamedTuple):
    """How good a version was on held-out days."""

    version: int
    rmse: float


def occasion_made(session: Session, occasion: str) -> bool:
    """Return whether an occasion has its run."""
    return session.scalar(select(RetrainRun.id).where(RetrainRun.occasion == occasion)) is not None


def occasion_began(session: Session, kind: str) -> bool:
    """Return whether any occasion of a kind has a run."""
    question = select(RetrainRun.id).where(RetrainRun.occasion.startswith(f"{kind} ", autoescape=True)).limit(1)
    return session.scalar(question) is not None


def promises_of_active(session: Session) -> dict[int, Promise]:
    """Return version and held-out RMSE of every active model, by link key; one without the figure promises nothing."""
    rmse = ModelVersion.about[HELD_OUT_RMSE].as_float()
    question = select(ModelVersion.link_key, ModelVersion.version, rmse).where(ModelVersion.state == "active")
    return {key: Promise(version, value) for key, version, value in session.execute(question) if value is not None}


def resting_links(session: Session, since: datetime) -> set[int]:
    """Return the links that are in a run, or whose run ended after a moment."""
    question = select(RetrainLink.link_key).where(
        or_(RetrainLink.state.in_(OPEN_LINK), RetrainLink.finished_at > since)
    )
    return set(session.scalars(question.distinct()))


MEASURE_SECONDS = 300.0  # accuracy moves with the slots; measuring all links takes about a second

log = logging.getLogger("flowcast.triggers")


@dataclass
class Watch:
    """What a process that watches remembers."""

    since: datetime  # a schedule that is new is not behind with what came before it
    measure_at: float = 0.0  # when accuracy is looked at next, by the monotonic clock


class Triggers:
    """Makes the runs that are due; of several processes that watch, one makes each."""

    def __init__(self, engine: Engine, settings: Settings, clock: Clock, watch: Watch) -> None:
        self._engine, self._settings, self._clock, self._watch = engine, settings, clock, watch

    def make_due_runs(self) -> list[int]:
        """Queue what is due; give the numbers of the runs."""
        made = [self._scheduled(), self._refresh(), self._triggered()]
        return [run_id for run_id in made if run_id is not None]

    def _scheduled(self) -> int | None:
        """Queue a run over all links for the latest moment of the schedule, whatever moments were missed before it."""
        occasion = self._due(SCHEDULE, self._settings.retrain_schedule)
        if occasion is None:
            return None
        with reading(self._engine) as session:
            links = all_links(session)
        return self._queue(links, SCHEDULE, occasion)

    def _refresh(self) -> int | None:
        """Queue a refresh of the network models for the latest moment of their schedule."""
        occasion = self._due(REFRESH, self._settings.refresh_schedule)
        if occasion is None:
            return None
        try:
            with reading(self._engine) as session:
                links = refreshable(session, all_links(session))
        except Conflict:  # there is no network model
            return None
        order = Order(NETWORK, {REFRESH: True}, "always", requested_by=REFRESH, occasion=occasion)
        return self._ask(links, order)

    def _due(self, kind: str, schedule: str) -> str | None:
        """Return the occasion that a schedule makes due; None where there is none, or where it has its run."""
        if not schedule:
            return None
        moment = last_cron_time(schedule, self._clock.now())
        occasion = f"{kind} {moment:%Y-%m-%dT%H:%M:%SZ}"
        with reading(self._engine) as session:
            # Missed while nothing ran: made up if there was a schedule before.
            missed = moment <= self._watch.since and not occasion_began(session, kind)
            return None if missed or occasion_made(session, occasion) else occasion

    def _triggered(self) -> int | None:
        """Queue a run over the links whose accuracy fell, one an hour at most."""
        if not self._settings.retrain_trigger or time.monotonic() < self._watch.measure_at:
            return None
        self._watch.measure_at = time.monotonic() + MEASURE_SECONDS
        occasion = f"{TRIGGER} {self._clock.now():%Y-%m-%dT%H:00:00Z}"
        cool_since = datetime.now(UTC) - timedelta(hours=self._settings.retrain_trigger_cool_down_hours)
        with reading(self._engine) as session:
            if occasion_made(session, occasion):
                return None
            fallen = falling_links(session, self._settings, cool_since)
        for one in fallen:
            log.info(
                "accuracy fell", extra={"link": one.link.link_id, "rmse": one.realised, "held_out_rmse": one.held_out}
            )
        return self._queue([one.link for one in fallen], TRIGGER, occasion)

    def _queue(self, links: Sequence[LinkInfo], by: str, occasion: str) -> int | None:
        algorithm = self._settings.retrain_algorithm
        return self._ask(links, Order(algorithm, {}, "if_better", requested_by=by, occasion=occasion))

    def _ask(self, links: Sequence[LinkInfo], order: Order) -> int | None:
        if not links:
            return None
        try:
            with writing(self._engine) as session:
                return request_run(session, links, order)[0].id
        except IntegrityError:  # another process was faster, with this occasion or with one of the links
            return None
        except Conflict as busy:
            log.debug("nothing to retrain", extra={"occasion": order.occasion, "reason": busy.detail})
            return None


_watches: WeakKeyDictionary[Engine, Watch] = WeakKeyDictionary()


def make_due_runs(engine: Engine, settings: Settings, clock: Clock) -> list[int]:
    """Queue what the schedule and the trigger ask for; give the numbers of the runs."""
    watch = _watches.setdefault(engine, Watch(clock.now()))
    return Triggers(engine, settings, clock, watch).make_due_runs()
