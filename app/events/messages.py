"""The messages of a webhook: what is new since its cursor, a bounded piece at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.database import reading
from app.events.payloads import ACTIVATION, FORECAST, activation_event, forecast_event
from app.events.tables import Webhook
from app.events.webhook_queries import Marks
from app.forecasts.issued_forecast import IssuedForecast, encode
from app.forecasts.queries import stored_forecasts
from app.links.queries import all_links
from app.registry.queries import activations_after

LINKS_A_MESSAGE = 200  # some 300 kB
ACTIVATIONS_A_MESSAGE = 100


@dataclass
class Cursor:
    """What a webhook was sent: the newest activation, and each link's forecast."""

    activation: int
    marks: Marks = field(default_factory=dict)

    @classmethod
    def of(cls, row: Webhook) -> Cursor:
        """Read a webhook's cursor; without one it was sent nothing."""
        stored = json.loads(row.last_forecast or "{}")
        return cls(row.last_activation, {int(key): (as_of, version) for key, (as_of, version) in stored.items()})

    def written(self) -> str:
        """Write the forecasts' part down."""
        return json.dumps(self.marks, separators=(",", ":"))


class News(NamedTuple):
    """What could be sent, as it was when the database was last read."""

    activation: int  # number of the newest
    marks: Marks
    now: int  # by the service's clock, in Unix seconds: by which the age of counts is computed


class Message(NamedTuple):
    """A body to send, and the cursor once it arrived; without a body there is only the cursor to move.

    A message that is sent again because it did not arrive has the same id, by which receivers know it.
    """

    id: str
    type: str
    body: bytes | None
    after: Cursor


def changed(cursor: Cursor, news: News) -> Marks:
    """Return the links whose latest forecast is not the one sent."""
    return {key: mark for key, mark in news.marks.items() if cursor.marks.get(key) != mark}


def messages(engine: Engine, kinds: str, cursor: Cursor, news: News, now: datetime) -> Iterator[Message]:
    """Return what a webhook is to be sent, activations first: they explain the forecasts."""
    # Links that are gone leave the cursor, or it would grow for ever.
    cursor = Cursor(cursor.activation, {key: mark for key, mark in cursor.marks.items() if key in news.marks})
    if ACTIVATION in kinds:
        for message in _activations(engine, cursor, news, now):
            cursor = message.after
            yield message
    if FORECAST in kinds:
        yield from _forecasts(engine, cursor, news, now)


def _activations(engine: Engine, cursor: Cursor, news: News, now: datetime) -> Iterator[Message]:
    while True:
        with reading(engine) as session:
            found = activations_after(session, cursor.activation, ACTIVATIONS_A_MESSAGE)
        # Beyond the newest that was looked for, one with a lower number may still be under way.
        rows = [(row, link_id) for row, link_id in found if row.id <= news.activation]
        if not rows:
            return
        items = [activation_event(row, link_id) for row, link_id in rows]
        body = json.dumps(_head(ACTIVATION, now) | {"activations": items}).encode()
        cursor = Cursor(rows[-1][0].id, cursor.marks)
        yield Message(_id(ACTIVATION, [row.id for row, _ in rows]), ACTIVATION, body, cursor)


def _forecasts(engine: Engine, cursor: Cursor, news: News, now: datetime) -> Iterator[Message]:
    waiting = sorted(changed(cursor, news).items())
    for begin in range(0, len(waiting), LINKS_A_MESSAGE):
        part = dict(waiting[begin : begin + LINKS_A_MESSAGE])
        with reading(engine) as session:
            forecasts = _stored_forecasts(session, part)
        links = [forecast_event(one, news.now) for one in forecasts]
        body = encode(_head(FORECAST, now) | {"links": links}) if links else None
        cursor = Cursor(cursor.activation, cursor.marks | part)
        # With the newest activation, because a rollback makes an earlier forecast the latest once more.
        number = _id(FORECAST, [news.activation, *part.items()])
        yield Message(number, FORECAST, body, cursor)


def _stored_forecasts(session: Session, marks: Marks) -> list[IssuedForecast]:
    links = [link for link in all_links(session) if link.link_key in marks]
    stored = stored_forecasts(session, links, {key: as_of for key, (as_of, _) in marks.items()})
    wanted = [stored.get((link.link_key, marks[link.link_key][1])) for link in links]
    return [payload for payload in wanted if payload is not None]


def _head(event_type: str, now: datetime) -> dict[str, Any]:
    sent_at = now.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"type": event_type, "event": f"{event_type}s", "sent_at": sent_at}  # event: deprecated


def _id(event_type: str, content: list[Any]) -> str:
    return f"msg_{uuid5(NAMESPACE_OID, f'{event_type} {content}').hex}"
