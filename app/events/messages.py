"""The payloads of events, for streams and webhooks, and the messages that a webhook has not been sent yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from sqlalchemy import Engine

from app.core.database import reading
from app.events.queries import Marks
from app.events.schemas import EventKind
from app.events.tables import Webhook
from app.forecasts.issued_forecast import HORIZONS, Document, IssuedForecast, encode, listed_document
from app.forecasts.queries import stored_forecasts
from app.links.queries import all_links
from app.registry.queries import activations_after
from app.registry.tables import Activation
from app.training.schemas import ActivationOut

LINKS_A_MESSAGE = 200  # some 300 kB
ACTIVATIONS_A_MESSAGE = 100


def forecast_event(issued: IssuedForecast, now: int) -> Document:
    """Return a link's forecast, all horizons, as ``GET /v1/forecasts`` has it, with its sequence number.

    The number is that of the slot the forecast was made as of, counted from 1970. It needs no counter, is the same
    in every process, and a slot without an event is a gap in it.
    """
    age = max(0, now - issued.as_of - issued.link.slot_seconds)
    return {"sequence": issued.as_of // issued.link.slot_seconds, **listed_document(issued, HORIZONS, age)}


def activation_event(row: Activation, link_id: str) -> Document:
    """Return an activation as ``GET /v1/admin/links/{link_id}/activations`` has it."""
    return ActivationOut.of(row, link_id).model_dump(mode="json")


class DeliveryCursor(NamedTuple):
    """The newest activation, and the latest forecast of each link: those that a webhook was sent, or those stored."""

    activation: int
    marks: Marks

    @classmethod
    def of(cls, row: Webhook) -> DeliveryCursor:
        """Read a webhook's cursor; a webhook without one was sent nothing."""
        stored = json.loads(row.last_forecast or "{}")
        return cls(row.last_activation, {int(key): (as_of, version) for key, (as_of, version) in stored.items()})

    def columns(self) -> dict[str, Any]:
        """Return the cursor as values of a webhook's columns."""
        return {
            "last_activation": self.activation,
            "last_forecast": json.dumps(self.marks, separators=(",", ":")),
        }

    def changed(self, latest: DeliveryCursor) -> Marks:
        """Return the links whose latest forecast is not the one sent."""
        return {key: mark for key, mark in latest.marks.items() if self.marks.get(key) != mark}


class Message(NamedTuple):
    """A body to send, and the cursor once it arrived; without a body there is only the cursor to move.

    A message that is sent again because it did not arrive has the same id, by which receivers recognise it.
    """

    id: str
    type: EventKind
    body: bytes | None
    after: DeliveryCursor


def messages(
    engine: Engine, kinds: str, cursor: DeliveryCursor, latest: DeliveryCursor, sent_at: datetime, now: int
) -> Iterator[Message]:
    """Yield the messages to send to a webhook, activations first, because they explain the forecasts.

    ``now`` is the time by the service's clock, in Unix seconds, by which the age of counts is computed.
    """
    # Links that were deleted leave the cursor, or it would grow for ever.
    cursor = cursor._replace(marks={key: mark for key, mark in cursor.marks.items() if key in latest.marks})
    if EventKind.ACTIVATION in kinds:
        for message in _activations(engine, cursor, latest, sent_at):
            cursor = message.after
            yield message
    if EventKind.FORECAST in kinds:
        yield from _forecasts(engine, cursor, latest, sent_at, now)


def _activations(
    engine: Engine, cursor: DeliveryCursor, latest: DeliveryCursor, sent_at: datetime
) -> Iterator[Message]:
    while True:
        with reading(engine) as session:
            found = activations_after(session, cursor.activation, ACTIVATIONS_A_MESSAGE)
        # Newer ones wait, because one with a lower number may still be uncommitted.
        rows = [(row, link_id) for row, link_id in found if row.id <= latest.activation]
        if not rows:
            return
        items = [activation_event(row, link_id) for row, link_id in rows]
        body = json.dumps(_head(EventKind.ACTIVATION, sent_at) | {"activations": items}).encode()
        cursor = cursor._replace(activation=rows[-1][0].id)
        yield Message(_id(EventKind.ACTIVATION, [row.id for row, _ in rows]), EventKind.ACTIVATION, body, cursor)


def _forecasts(
    engine: Engine, cursor: DeliveryCursor, latest: DeliveryCursor, sent_at: datetime, now: int
) -> Iterator[Message]:
    waiting = sorted(cursor.changed(latest).items())
    for begin in range(0, len(waiting), LINKS_A_MESSAGE):
        part = dict(waiting[begin : begin + LINKS_A_MESSAGE])
        links = [forecast_event(one, now) for one in _read_forecasts(engine, part)]
        body = encode(_head(EventKind.FORECAST, sent_at) | {"links": links}) if links else None
        cursor = cursor._replace(marks=cursor.marks | part)
        # The id includes the newest activation, because a rollback makes an earlier forecast the latest again.
        message_id = _id(EventKind.FORECAST, [latest.activation, *part.items()])
        yield Message(message_id, EventKind.FORECAST, body, cursor)


def _read_forecasts(engine: Engine, marks: Mapping[int, tuple[int, int]]) -> list[IssuedForecast]:
    with reading(engine) as session:
        links = [link for link in all_links(session) if link.link_key in marks]
        stored = stored_forecasts(session, links, {key: as_of for key, (as_of, _) in marks.items()})
    wanted = [(link.link_key, marks[link.link_key][1]) for link in links]
    return [stored[key] for key in wanted if key in stored]


def _head(kind: EventKind, sent_at: datetime) -> Document:
    moment = sent_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"type": kind, "event": f"{kind}s", "sent_at": moment}  # event: deprecated


def _id(kind: EventKind, content: list[Any]) -> str:
    return f"msg_{uuid5(NAMESPACE_OID, f'{kind} {content}').hex}"
