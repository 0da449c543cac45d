"""Put forecasts into answers: one link, explained, or the whole network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Engine

from app.core.database import reading
from app.core.errors import Invalid, NotYet, Problem, Unavailable, no_link
from app.core.times import unix_seconds
from app.forecasts.board import ForecastBoard
from app.forecasts.entry import Entry, Rendered
from app.forecasts.explain import explain as explain_statement
from app.forecasts.outage import Latest, said_now
from app.links.geometry import Box
from app.links.queries import all_links, link_boxes, link_or_404, upstream_of

BOX_RULE = "must be west,south,east,north in degrees, with south below north"


def link_forecast(board: ForecastBoard, entry: Entry, horizons: int, stale: bool = False) -> bytes:
    """Give one link's answer."""
    rendered, age = said_now(board, entry, stale)
    if rendered is None and stale and entry.stated is not None:
        link_id = entry.basis.link.link_id
        missing = "the database is unreachable and its profile is not in memory"
        raise Unavailable(f"there is no forecast of link {link_id!r} from now on: {missing}")
    if rendered is None:
        raise silence_of(entry)
    return rendered.body(horizons, age, stale)


def silence_of(entry: Entry) -> Problem:
    """Say why there is nothing to say about a link."""
    link_id = entry.basis.link.link_id
    if entry.basis.as_of is None:
        return NotYet(f"link {link_id!r} has no counts yet; post some to /v1/counts")
    return Unavailable(f"the forecast of link {link_id!r} failed; the service's log says why")


def explained(
    engine: Engine, board: ForecastBoard, link_id: str, horizons: int, as_of: datetime | None, with_reasons: bool
) -> bytes:
    """Give one link's answer with its reasons, or as of a past slot; what was not said then is not stored."""
    entry = board.look_up([link_id]).get(link_id)
    if entry is None:
        raise no_link(link_id)
    with reading(engine) as session:
        if as_of is None:
            rendered, age = board.rendered(entry)
            if rendered is None:
                raise silence_of(entry)
        else:
            link = link_or_404(session, link_id)
            slot = _past_slot(entry, as_of)
            stated = board.issuer.state(session, [link], {link.link_key: slot})
            if not stated:
                raise silence_of(entry)
            rendered = Rendered(stated[0])
            age = max(0, board.now() - slot - link.slot_seconds)
        body = rendered.body(horizons, age)
        if not with_reasons:
            return body
        explanation = explain_statement(session, board.issuer, rendered.said)
    reasons = "null" if explanation is None else explanation.model_dump_json()
    return body[:-1] + b',"explanation":' + reasons.encode() + b"}"


def _past_slot(entry: Entry, as_of: datetime) -> int:
    slot, link, newest = unix_seconds(as_of), entry.basis.link, entry.basis.as_of
    if slot % link.slot_seconds or as_of.microsecond:
        raise Invalid.field(
            "as_of", as_of.isoformat(), f"must lie on the link's grid of {link.slot_minutes}-minute slots"
        )
    if newest is None:
        raise NotYet(f"link {link.link_id!r} has no counts yet; post some to /v1/counts")
    if slot > newest:
        raise NotYet(f"as_of={as_of.isoformat()} lies after the newest count of link {link.link_id!r}")
    return slot


class SaidOfAll:
    """What is said now of many links, in the order of their ids."""

    def __init__(self, board: ForecastBoard, found: Latest, horizons: int) -> None:
        now, self._stale, self._horizons = board.now(), found.stale, horizons
        self._said = [
            (link_id, entry, *said_now(board, entry, found.stale, now))
            for link_id, entry in sorted(found.entries.items())
        ]

    def tag(self, *also: object) -> str:
        """Return what changes with one of the forecasts or with what else is given; their age alone changes nothing."""
        marks = (
            repr((link_id, entry.basis.link.link_key, _silent(entry))).encode() if rendered is None else rendered.mark
            for link_id, entry, rendered, _ in self._said
        )
        head = repr((self._horizons, self._stale, also)).encode()
        return f'W/"{hashlib.sha1(b" ".join((head, *marks)), usedforsecurity=False).hexdigest()}"'

    def body(self) -> bytes:
        """Give the answer."""
        links = (
            _unsaid(link_id, entry) if rendered is None else rendered.listed(self._horizons, age)
            for link_id, entry, rendered, age in self._said
        )
        return b'{"stale":%s,"links":[%s]}' % (b"true" if self._stale else b"false", b",".join(links))


def _silent(entry: Entry) -> str:
    return "no_counts" if entry.basis.as_of is None else "failed"


def _unsaid(link_id: str, entry: Entry) -> bytes:
    return json.dumps({"link_id": link_id, "status": _silent(entry), "forecasts": []}, separators=(",", ":")).encode()


def wanted_links(engine: Engine, links: str | None, bbox: str | None, upstream: str | None) -> set[str] | None:
    """Give the ids that a caller's filters leave; None for all."""
    wanted: set[str] | None = None
    if links is not None:
        wanted = {name for name in (part.strip() for part in links.split(",")) if name}
    if bbox is None and upstream is None:
        return wanted
    with reading(engine) as session:
        names = {link.link_key: link.link_id for link in all_links(session)}
        if bbox is not None:
            wanted = _both(wanted, {names[key] for key in _touching(link_boxes(session), _box(bbox))})
        if upstream is not None:
            wanted = _both(wanted, {names[key] for key in upstream_of(session, upstream)})
    return wanted


def _touching(
    boxes: Mapping[int, tuple[float, float, float, float]], box: tuple[float, float, float, float]
) -> list[int]:
    west, south, east, north = box
    spans = any if west > east else all  # across the 180th meridian a box is two, and either will do
    return [
        key
        for key, (left, low, right, high) in boxes.items()
        if spans((left <= east, right >= west)) and low <= north and high >= south
    ]


def _both(one: set[str] | None, other: set[str]) -> set[str]:
    return other if one is None else one & other


def _box(text: str) -> Box:
    try:
        west, south, east, north = (float(part) for part in text.split(","))
    except ValueError:
        raise Invalid.field("bbox", text, BOX_RULE) from None
    if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90):
        raise Invalid.field("bbox", text, BOX_RULE)
    return west, south, east, north
