"""Retrain runs that are queued by the schedules, or because accuracy fell."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Engine, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.accuracy.error_sums import ErrorSums, measures, total
from app.accuracy.queries import MODEL_VERSION, PART, ForecastFilter, network_sums
from app.core.clock import Clock
from app.core.database import reading, writing
from app.core.errors import Conflict
from app.core.times import Span, last_cron_time
from app.counts.queries import newest_slot_end
from app.links.queries import LinkInfo, all_links
from app.registry.tables import ModelVersion
from app.settings import Settings
from app.training.compare import ENSEMBLE
from app.training.queries import OPEN_LINK
from app.training.request import REFRESH, SCHEDULE, TRIGGER, Activate, refreshable, request_run
from app.training.tables import RetrainLink, RetrainRun
from model.network_model.network import ALGORITHM as NETWORK

HORIZON = 1
LEAST_SCORED = 0.5  # share of the window's slots
MEASURE_SECONDS = 300.0  # accuracy moves with the slots; measuring all links takes about a second
RMSE_OF_ENSEMBLE, RMSE_OF_MODEL = (("held_out", method, "rmse", "value") for method in (ENSEMBLE, "candidate"))

log = logging.getLogger("flowcast.triggers")


class FallenAccuracy(NamedTuple):
    """A link whose realised RMSE exceeds that of held-out days."""

    link: LinkInfo
    realised: float
    held_out: float


class Triggers:
    """Queues the runs that are due; of several processes that do so, one queues each run.

    Parameters
    ----------
    since : datetime, optional
        Moments before it are not made up for by a schedule that has had no run; by default the time of the first check.
    """

    def __init__(self, engine: Engine, settings: Settings, clock: Clock, since: datetime | None = None) -> None:
        self._engine, self._settings, self._clock, self._since = engine, settings, clock, since
        self._measure_at = 0.0  # when accuracy is measured next, by the monotonic clock

    def queue_due_runs(self) -> list[int]:
        """Queue the runs that are due by the schedules and the trigger; return their numbers."""
        self._since = self._since or self._clock.now()
        queued = [self._queue_scheduled(), self._queue_refresh(), self._queue_triggered()]
        return [run_id for run_id in queued if run_id is not None]

    def _queue_scheduled(self) -> int | None:
        """Queue a run over all links for the latest moment of the schedule, whatever moments were missed before it."""
        occasion = self._due(SCHEDULE, self._settings.retrain_schedule)
        if occasion is None:
            return None
        with reading(self._engine) as session:
            links = all_links(session)
        return self._queue(SCHEDULE, occasion, links)

    def _queue_refresh(self) -> int | None:
        """Queue a refresh of the network models for the latest moment of their schedule."""
        occasion = self._due(REFRESH, self._settings.refresh_schedule)
        if occasion is None:
            return None
        try:
            with reading(self._engine) as session:
                links = refreshable(session, all_links(session))
        except Conflict:  # there is no network model
            return None
        return self._queue(REFRESH, occasion, links, NETWORK, {REFRESH: True}, "always")

    def _queue_triggered(self) -> int | None:
        """Queue a run over the links whose accuracy fell, one an hour at most."""
        if not self._settings.retrain_trigger or time.monotonic() < self._measure_at:
            return None
        self._measure_at = time.monotonic() + MEASURE_SECONDS
        occasion = f"{TRIGGER} {self._clock.now():%Y-%m-%dT%H:00:00Z}"
        cool_since = datetime.now(UTC) - timedelta(hours=self._settings.retrain_trigger_cool_down_hours)
        with reading(self._engine) as session:
            if occasion_has_run(session, occasion):
                return None
            fallen = fallen_accuracies(session, self._settings, cool_since)
        for one in fallen:
            facts = {"link": one.link.link_id, "rmse": one.realised, "held_out_rmse": one.held_out}
            log.info("accuracy fell", extra=facts)
        return self._queue(TRIGGER, occasion, [one.link for one in fallen])

    def _due(self, kind: str, schedule: str) -> str | None:
        """Return the occasion that is due by a schedule; None if there is none, or if it has its run already."""
        if not schedule:
            return None
        moment = last_cron_time(schedule, self._clock.now())
        occasion = f"{kind} {moment:%Y-%m-%dT%H:%M:%SZ}"
        any_run = select(RetrainRun.id).where(RetrainRun.occasion.startswith(f"{kind} ", autoescape=True)).limit(1)
        with reading(self._engine) as session:
            # A moment that was missed while nothing ran is made up for if the schedule made a run before.
            assert self._since is not None
            if (moment <= self._since and session.scalar(any_run) is None) or occasion_has_run(session, occasion):
                return None
        return occasion

    def _queue(
        self,
        by: str,
        occasion: str,
        links: Sequence[LinkInfo],
        algorithm: str | None = None,
        parameters: dict[str, Any] | None = None,
        activate: Activate = "if_better",
    ) -> int | None:
        if not links:
            return None
        algorithm = algorithm or self._settings.retrain_algorithm
        try:
            with writing(self._engine) as session:
                run, _ = request_run(
                    session, links, algorithm, parameters or {}, activate=activate, requested_by=by, occasion=occasion
                )
        except IntegrityError:  # another process was faster, with this occasion or with one of the links
            return None
        except Conflict as busy:
            log.debug("nothing to retrain", extra={"occasion": occasion, "reason": busy.detail})
            return None
        log.info("run queued by schedule or trigger", extra={"run": run.id})
        return run.id


def occasion_has_run(session: Session, occasion: str) -> bool:
    """Return whether a run was queued for an occasion."""
    return session.scalar(select(RetrainRun.id).where(RetrainRun.occasion == occasion)) is not None


def fallen_accuracies(session: Session, settings: Settings, cool_since: datetime) -> list[FallenAccuracy]:
    """Find links to retrain, by the forecasts one slot ahead of the model or of the experts that forecast them.

    Links that are in a run, or that left one after ``cool_since``, are left out, and so are those without a figure
    of held-out days. The window ends with the newest count of any link: a detector that stopped sending has
    too few scored slots in it, and is no reason to learn anything new.
    """
    end = newest_slot_end(session)
    if end is None:
        return []
    figures = [ModelVersion.about[path].as_float() for path in (RMSE_OF_MODEL, RMSE_OF_ENSEMBLE)]
    query = select(ModelVersion.link_key, ModelVersion.version, *figures).where(ModelVersion.state == "active")
    # Of several versions that are active, the one that was activated last.
    held_out = {key: rest for key, *rest in session.execute(query.order_by(ModelVersion.activated_at))}
    recent = or_(RetrainLink.state.in_(OPEN_LINK), RetrainLink.finished_at > cool_since)
    resting = set(session.scalars(select(RetrainLink.link_key).where(recent).distinct()))
    links = [link for link in all_links(session) if link.link_key in held_out and link.link_key not in resting]
    if not links:
        return []
    span = Span(max(0, end - 3600 * settings.retrain_trigger_window_hours), end)
    sums = network_sums(session, ForecastFilter(span, HORIZON), settings.mare_min_count, by=(PART, MODEL_VERSION))
    by_link: dict[int, dict[int, ErrorSums]] = {}
    for (key, model_version), part in sums.items():
        by_link.setdefault(key, {})[model_version] = part
    fallen = []
    for link in sorted(links, key=lambda link: link.link_key):
        version, of_model, of_ensemble = held_out[link.link_key]
        found = by_link.get(link.link_key, {})
        # Forecasts of an ensemble have the versions of its experts.
        served = total(found.values()) if link.has_ensemble else found.get(version, ErrorSums())
        promised = of_ensemble if link.has_ensemble and of_ensemble is not None else of_model
        slots = len(span.slots(link.slot_seconds))
        errors = measures(served, slots)
        rmse: float | None = errors["rmse"]
        enough = errors["n_used"] >= LEAST_SCORED * slots
        if enough and promised is not None and rmse is not None and rmse > settings.retrain_trigger * promised:
            fallen.append(FallenAccuracy(link, rmse, promised))
    return fallen
