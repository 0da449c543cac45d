"""Forecasts as JSON documents, for responses and events: of one link, explained, or of the whole network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Engine

from app.core.database import reading
from app.core.errors import Conflict, Invalid, Problem, Unavailable, no_link
from app.core.times import unix_seconds
from app.forecasts.cache import CacheEntry, ForecastCache, Latest
from app.forecasts.explain import explain as explain_forecast
from app.forecasts.issued_forecast import IssuedForecast
from app.links.geometry import Box
from app.links.queries import all_links, link_boxes, link_or_404, upstream_of

Document = dict[str, Any]


def encode(document: Document) -> bytes:
    """Encode a document as compact JSON."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def link_document(issued: IssuedForecast, horizons: int, age: int, *, stale: bool = False) -> Document:
    """Return the document of one link's forecasts; ``age`` is that of its newest count, in seconds."""
    return {"link_id": issued.link.link_id, "stale": stale, "forecasts": forecast_items(issued, horizons, age)}


def listed_document(issued: IssuedForecast, horizons: int, age: int) -> Document:
    """Return the document of a link's forecasts as one of many."""
    status = "degraded" if issued.degraded_reason else "ok"
    return {"link_id": issued.link.link_id, "status": status, "forecasts": forecast_items(issued, horizons, age)}


def forecast_items(issued: IssuedForecast, horizons: int, age: int) -> list[Document]:
    """Return an item for each of the first horizons."""
    return [
        {
            "horizon": h + 1,
            "slot_start": rfc3339(slot),
            "expected_count": issued.expected[h],
            "lower": issued.lower[h],
            "upper": issued.upper[h],
            "level": issued.level,
            "flow": round(issued.expected[h] * 3600 / issued.link.slot_seconds, 3),
            "as_of_slot": rfc3339(issued.as_of),
            "issued_at": rfc3339_micros(issued.issued_at),
            "method": issued.method,
            "degraded_reason": issued.degraded_reason,
            "filled_lags": issued.filled_lags,
            "data_age_seconds": age,
            "model_version": issued.model_version or None,
        }
        for h, slot in enumerate(issued.slots()[:horizons])
    ]


def identity(issued: IssuedForecast) -> tuple[object, ...]:
    """Return what no other forecast has, to compare forecasts and to derive entity tags from."""
    source = (issued.as_of, issued.model_version, issued.degraded_reason, issued.issued_at)
    return (issued.link.link_id, issued.link.link_key, *source)


@lru_cache(maxsize=256)  # all links of a batch share their slots and the time of issue
def rfc3339(seconds: int) -> str:
    """Return Unix seconds as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=256)
def rfc3339_micros(microseconds: int) -> str:
    """Return microseconds since 1970 as a time in UTC."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


BOX_RULE = "must be west,south,east,north in degrees, with south below north"


def link_forecast(cache: ForecastCache, entry: CacheEntry, horizons: int, *, stale: bool = False) -> Document:
    """Return the document of one link's forecast, or raise why there is none."""
    forecast, age = cache.current(entry)
    if forecast is None:
        raise _missing(entry, stale=stale)
    return link_document(forecast, horizons, age, stale=stale)


def _missing(entry: CacheEntry, *, stale: bool = False) -> Problem:
    """Return why a link has no forecast."""
    link_id = entry.key.link.link_id
    if entry.key.as_of is None:
        return Conflict(f"link {link_id!r} has no counts yet; post some to /v1/counts")
    if stale and entry.issued is not None:
        missing = "the database is unreachable and its profile is not in memory"
        return Unavailable(f"there is no forecast of link {link_id!r} from now on: {missing}")
    return Unavailable(f"the forecast of link {link_id!r} failed; the service's log says why")


def explained(
    cache: ForecastCache, link_id: str, horizons: int, as_of: datetime | None, with_reasons: bool
) -> Document:
    """Return one link's forecast with its reasons, or as of a past slot, which is computed and not stored."""
    entry = cache.look_up([link_id]).get(link_id)
    if entry is None:
        raise no_link(link_id)
    with reading(cache.engine) as session:
        if as_of is None:
            forecast, age = cache.current(entry)
        else:
            link = link_or_404(session, link_id)
            slot = _past_slot(entry, as_of)
            forecast = next(iter(cache.forecaster.compute(session, [link], {link.link_key: slot})), None)
            age = max(0, cache.now() - slot - link.slot_seconds)
        if forecast is None:
            raise _missing(entry)
        document = link_document(forecast, horizons, age)
        if with_reasons:
            explanation = explain_forecast(session, cache.forecaster, forecast)
            document["explanation"] = None if explanation is None else explanation.model_dump(mode="json")
        return document


def _past_slot(entry: CacheEntry, as_of: datetime) -> int:
    slot, link, newest = unix_seconds(as_of), entry.key.link, entry.key.as_of
    if slot % link.slot_seconds or as_of.microsecond:
        raise Invalid.field(
            "as_of", as_of.isoformat(), f"must lie on the link's grid of {link.slot_minutes}-minute slots"
        )
    if newest is None:
        raise Conflict(f"link {link.link_id!r} has no counts yet; post some to /v1/counts")
    if slot > newest:
        raise Conflict(f"as_of={as_of.isoformat()} lies after the newest count of link {link.link_id!r}")
    return slot


class ForecastList:
    """The forecasts of many links, in the order of their ids."""

    def __init__(self, cache: ForecastCache, found: Latest, horizons: int) -> None:
        now, self._stale, self._horizons = cache.now(), found.stale, horizons
        self._forecasts = [(entry, *cache.current(entry, now)) for _, entry in sorted(found.entries.items())]

    def tag(self, *also: object) -> str:
        """Return a weak entity tag that changes with a forecast or with what else is given, but not with their age."""
        parts = [_without_forecast(entry) if one is None else identity(one) for entry, one, _ in self._forecasts]
        text = repr((self._horizons, self._stale, also, parts))
        return f'W/"{hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()}"'

    def document(self) -> Document:
        """Return the document of all links."""
        links = [
            _without_forecast(entry) if one is None else listed_document(one, self._horizons, age)
            for entry, one, age in self._forecasts
        ]
        return {"stale": self._stale, "links": links}


def _without_forecast(entry: CacheEntry) -> Document:
    status = "no_counts" if entry.key.as_of is None else "failed"
    return {"link_id": entry.key.link.link_id, "status": status, "forecasts": []}


def wanted_links(engine: Engine, links: str | None, bbox: str | None, upstream: str | None) -> set[str] | None:
    """Return the ids of links that pass a caller's filters; None for all."""
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
