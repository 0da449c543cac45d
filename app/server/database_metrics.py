"""Metrics that are the same in every process, most of them read from the database.

They are read by a scrape and kept for some seconds, so that any number of scrapes cost one read. Those that change
slowly and need a read of all trained models are kept for longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from app.core.database import reading
from app.core.schema import NEWEST_STEP
from app.events.queries import webhooks_by_state
from app.registry.queries import active_versions, models_by_state
from app.registry.tables import STATES as MODEL_STATES
from app.server.readiness import DatabaseState, Readiness
from app.server.resources import Resources
from app.training.queries import LINKS_OF, OUTCOMES, RetrainFigures, retrain_figures
from app.training.tables import STATES as RUN_STATES

log = logging.getLogger("flowcast.database_metrics")

FRESH_SECONDS = 10.0
SLOW_SECONDS = 30.0
MOST_SECONDS = 3.0  # with the readiness before it, less than a scrape may take


@dataclass(frozen=True)
class SlowMetrics:
    """Trained models, retrain runs and webhooks in the database."""

    models: dict[str, int]
    active: set[tuple[int, int]]  # version by link key
    retrain: RetrainFigures
    webhooks: dict[str, int]


class DatabaseMetrics:
    """Reads metrics from the database, every ten seconds at most, and slow ones every thirty."""

    def __init__(self, resources: Resources, readiness: Readiness, version: str) -> None:
        self._resources, self._readiness = resources, readiness
        self._build = {
            "version": version,
            "revision": resources.settings.build_revision,
            "schema": NEWEST_STEP,
        }
        self._state = DatabaseState("it was not read yet")
        self._slow: SlowMetrics | None = None
        self._until = self._slow_until = 0.0
        self._lock = asyncio.Lock()

    async def families(self) -> list[Metric]:
        """Return all metrics; without those of the database while it is unreachable."""
        state, slow = await self._read()
        found: list[Metric] = []
        if slow is not None:
            try:
                found = [*self._feed_metrics(state, slow), *self._stored_metrics(slow, datetime.now(UTC))]
            except SQLAlchemyError as problem:  # the clock of a replay reads the database, too
                log.warning("the database failed", exc_info=problem)
                slow = None
        reached = state.trouble is None and (slow is not None or not state.is_ready)
        return [
            _gauge("flowcast_ready", "1 when /readyz returns 200", state.is_ready),
            _gauge("flowcast_database_up", "1 when the database answers", reached),
            InfoMetricFamily("flowcast_build", "What runs here", value=self._build),
            *found,
        ]

    async def _read(self) -> tuple[DatabaseState, SlowMetrics | None]:
        async with self._lock:
            if monotonic() >= self._until:
                self._state = await self._readiness.state()
                self._until = monotonic() + FRESH_SECONDS
            if not self._state.is_ready:
                self._slow, self._slow_until = None, 0.0
            elif monotonic() >= self._slow_until:
                self._slow = await self._read_slow_in_time()
                self._slow_until = monotonic() + (SLOW_SECONDS if self._slow else FRESH_SECONDS)
            return self._state, self._slow

    async def _read_slow_in_time(self) -> SlowMetrics | None:
        try:
            async with asyncio.timeout(MOST_SECONDS):
                return await run_in_threadpool(self._read_slow)
        except (TimeoutError, SQLAlchemyError) as problem:
            log.warning("the database failed", exc_info=problem)
            return None

    def _read_slow(self) -> SlowMetrics:
        with reading(self._resources.engine) as session:
            return SlowMetrics(
                models_by_state(session),
                active_versions(session),
                retrain_figures(session, datetime.now(UTC)),
                webhooks_by_state(session),
            )

    def _feed_metrics(self, state: DatabaseState, slow: SlowMetrics) -> Iterable[Metric]:
        about = "Since the end of the newest slot of all links; absent without counts"
        yield _gauge("flowcast_feed_age_seconds", about, self._readiness.feed_age(state))
        limit = self._resources.clock.now().timestamp() - 60 * self._resources.settings.stale_after_minutes
        stale = sum(end < limit for end in state.ends.values())
        feeds = {"fresh": len(state.ends) - stale, "stale": stale, "silent": state.links - len(state.ends)}
        yield _gauges("flowcast_links", "Links by how fresh their counts are", "feed", feeds)
        without = len(state.ends.keys() - {link_key for link_key, _ in slow.active})
        yield _gauge("flowcast_links_without_model", "Links with counts and no active model", without)

    def _stored_metrics(self, slow: SlowMetrics, now: datetime) -> Iterable[Metric]:
        damaged = len(slow.active & self._resources.loaded_models.damaged().keys())
        models = {state: slow.models.get(state, 0) for state in MODEL_STATES} | {"damaged": damaged}
        yield _gauges("flowcast_models", "Trained models by state; damaged: of the active", "state", models)
        retrain = slow.retrain
        runs = {state: retrain.runs.get(state, 0) for state in RUN_STATES}
        yield _gauges("flowcast_retrain_runs", "Retrain runs on record, by state", "state", runs)
        links = {outcome: retrain.links.get(outcome, 0) for outcome in OUTCOMES}
        about = f"Links of runs that ended in the last {LINKS_OF.days} days, by outcome"
        yield _gauges("flowcast_retrain_links", about, "outcome", links)
        about = "Age of the oldest queued run, 0 without one"
        yield _gauge("flowcast_retrain_oldest_queued_seconds", about, _since(retrain.queued_since, now))
        about = "Time since the last heartbeat of a running run, the longest; 0 without one"
        yield _gauge("flowcast_retrain_oldest_heartbeat_seconds", about, _since(retrain.heartbeat, now))
        ended = {state: moment.timestamp() for state, moment in retrain.ended.items()}
        about = "When a run last ended in each state; absent where none has"
        yield _gauges("flowcast_retrain_last_finished_timestamp_seconds", about, "state", ended)
        yield _gauges("flowcast_webhooks", "Webhooks by how delivery stands", "state", slow.webhooks)


def _gauge(name: str, about: str, value: float | None) -> Metric:
    return GaugeMetricFamily(name, about, value=None if value is None else float(value))


def _gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=[label])
    for name_of_value, value in values.items():
        family.add_metric([name_of_value], float(value))
    return family


def _since(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())
