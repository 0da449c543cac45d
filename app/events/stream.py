"""The state of one stream of events: what it has sent, and which events are new."""

from __future__ import annotations

import json
import time
from datetime import datetime

from sqlalchemy import Engine

from app.core.change_feed import ChangeFeed
from app.core.database import reading
from app.events.messages import activation_event, forecast_event
from app.events.schemas import EventKind
from app.forecasts.cache import ForecastCache
from app.forecasts.issued_forecast import IssuedForecast, encode
from app.http.sse import Frame
from app.registry.queries import activations_after, newest_activation
from app.registry.tables import Activation

MOST_ACTIVATIONS = 10_000
LOOK_BACK = 1000
# A forecast gets its time before it is committed, and clocks of hosts differ: what is resumed begins so much earlier.
OVERLAP_MICROSECONDS = 60_000_000

Identities = dict[str, tuple[object, ...]]


class NetworkEvents:
    """The latest forecast of each link, and activations, as one stream has sent them.

    The id of an event is the time of its forecast or activation in microseconds since 1970, or that of the event
    before if that is later: it means the same in every process, and after a restart.
    """

    def __init__(
        self, engine: Engine, changes: ChangeFeed, forecasts: ForecastCache, last_event_id: int | None = None
    ) -> None:
        self._engine, self._change_feed, self._forecast_cache = engine, changes, forecasts
        self._resumes = last_event_id is not None
        self._id = time.time_ns() // 1000 if last_event_id is None else last_event_id
        self._forecasts: Identities | None = None  # that were sent, by link; None before the first look
        self._activations: set[int] = set()
        self._newest = 0

    def version(self) -> object:
        """Return a value that changes once there may be a new event.

        It includes the revision of the cache, which changes a moment after the database.
        """
        return self._change_feed.any_version(), self._forecast_cache.revision

    def look(self, _last: Frame | None) -> tuple[list[Frame], bool]:
        """Return events since the last look, in the order of their times; the first look begins with `ready`."""
        entries = self._forecast_cache.look_up()
        latest = {link_id: entry.issued for link_id, entry in entries.items() if entry.issued is not None}
        recent = self._recent_activations()
        frames = []
        if self._forecasts is None:
            self._forecasts = self._sent_before(latest, recent)
            frames.append(Frame("ready", json.dumps({"links": len(entries)}), str(self._id)))
        now = self._forecast_cache.now()
        events = [
            (_microseconds(row.activated_at), EventKind.ACTIVATION, _activation(row, link_id))
            for row, link_id in recent
            if row.id not in self._activations
        ] + [
            (issued.issued_at, EventKind.FORECAST, encode(forecast_event(issued, now)).decode())
            for link_id, issued in latest.items()
            if issued.identity() != self._forecasts.get(link_id)
        ]
        self._forecasts = _identities(latest)
        self._activations |= {row.id for row, _ in recent}
        self._activations = {number for number in self._activations if number > self._newest - LOOK_BACK}
        for at, kind, data in sorted(events):
            self._id = max(self._id, at)
            frames.append(Frame(kind, data, str(self._id)))
        return frames, False

    def _recent_activations(self) -> list[tuple[Activation, str]]:
        """Return activations since the last look and some before: on PostgreSQL a lower number may appear later."""
        with reading(self._engine) as session:
            newest = newest_activation(session)
            since = newest if self._forecasts is None else self._newest
            self._newest = max(self._newest, newest)
            return activations_after(session, max(0, since - LOOK_BACK), MOST_ACTIVATIONS)

    def _sent_before(self, latest: dict[str, IssuedForecast], recent: list[tuple[Activation, str]]) -> Identities:
        """Return the forecasts, and set the activations, that are not sent because they preceded the stream.

        These are all, or for a stream that is resumed those older than the event after which it resumes.
        """
        if not self._resumes:
            self._activations = {row.id for row, _ in recent}
            return _identities(latest)
        begin = self._id - OVERLAP_MICROSECONDS
        self._activations = {row.id for row, _ in recent if _microseconds(row.activated_at) < begin}
        # An activation may make a forecast the latest that was issued long before.
        activated = {link_id for row, link_id in recent if row.id not in self._activations}
        older = {link_id: issued for link_id, issued in latest.items() if issued.issued_at < begin}
        return _identities({link_id: issued for link_id, issued in older.items() if link_id not in activated})


def _identities(forecasts: dict[str, IssuedForecast]) -> Identities:
    return {link_id: issued.identity() for link_id, issued in forecasts.items()}


def _activation(row: Activation, link_id: str) -> str:
    event = activation_event(row, link_id)
    del event["activated_by"]  # names a key, which only admins may see
    return json.dumps(event)


def _microseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)
