"""The forecasts of many links: filter the links, and return the response as JSON, CSV or GeoJSON."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Engine

from app.core.database import reading
from app.core.errors import Invalid
from app.forecasts.cache import STALE_HEADER, CacheEntry, ForecastCache
from app.forecasts.day_ahead import read_profiles
from app.forecasts.issued_forecast import Document, IssuedForecast, encode
from app.forecasts.levels import as_row, level_columns
from app.forecasts.options import ForecastOptions
from app.forecasts.profile_fallback import LinkProfile
from app.forecasts.schemas import EXAMPLE, FORECAST_COLUMNS, NETWORK_COLUMNS, STATUS_EXAMPLE
from app.http.csv import CSV, csv_content, csv_lines
from app.http.requests import is_unchanged
from app.http.shedding import Shedding
from app.links.geometry import Box
from app.links.queries import all_links, link_boxes, stored_links, upstream_of
from app.links.schemas import GEOJSON

ITEMS_A_PART = 1000  # forecasts of slots that are written at once: some 400 kB of JSON, and 10 ms
BOX_RULE = "must be west,south,east,north in degrees, with south below north"
FEATURE_COLLECTION = {
    "type": "object",
    "required": ["type", "stale", "features"],
    "properties": {
        "type": {"const": "FeatureCollection"},
        "stale": {"type": "boolean"},
        "features": {
            "type": "array",
            "description": "A feature for each link; `geometry` is null where it is unknown. `properties` are those of "
            "the nearest forecast, null where there is none, beside `link_id`, `status` and all `forecasts`",
            "items": {
                "type": "object",
                "required": ["type", "id", "geometry", "properties"],
                "properties": {
                    "type": {"const": "Feature"},
                    "id": {"type": "string"},
                    "geometry": {"type": ["object", "null"]},
                    "properties": {"type": "object"},
                },
            },
        },
    },
    "examples": [
        {
            "type": "FeatureCollection",
            "stale": False,
            "features": [
                {
                    "type": "Feature",
                    "id": "Ba",
                    "geometry": {"type": "LineString", "coordinates": [[7.0119, 54.5012], [7.0121, 54.5067]]},
                    "properties": EXAMPLE | STATUS_EXAMPLE,
                }
            ],
        }
    ],
}
NETWORK_CONTENT = csv_content(NETWORK_COLUMNS, STATUS_EXAMPLE | EXAMPLE) | {GEOJSON: {"schema": FEATURE_COLLECTION}}


def network_response(
    cache: ForecastCache,
    wanted: Collection[str] | None,
    options: ForecastOptions,
    media_type: str,
    request: Request,
) -> Response:
    """Return the forecasts of the wanted links, or of all, in a media type; 304 where the caller has them already."""
    entries, stale = cache.latest(wanted)
    options.check(entry.key.link for entry in entries.values())
    listed = ForecastList(cache, entries, options, stale=stale)
    geometries = _read_geometries(cache.engine, entries) if media_type == GEOJSON else {}
    tag = listed.tag(media_type, sorted(geometries.items()))
    headers = {"ETag": tag, "Cache-Control": "no-cache, private", "Vary": "Accept"}
    headers |= STALE_HEADER if listed.stale else {}
    if is_unchanged(request, tag):
        return Response(status_code=304, headers=headers)
    if media_type == CSV:
        parts = _csv(listed)
    elif media_type == GEOJSON:
        parts = _feature_collection(listed, geometries)
    else:
        parts = _json(listed)
    if options.needs_profile:  # a thousand links a day ahead take 40 MB
        shedding: Shedding = request.app.state.shedding
        return StreamingResponse(_computed_in_lane(shedding, parts), headers=headers, media_type=media_type)
    return Response(b"".join(parts), headers=headers, media_type=media_type)


async def _computed_in_lane(shedding: Shedding, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield parts that are computed one by one, so that other requests can use the lane in between."""
    while part := await shedding.run_in_lane("forecasts", next, parts, b""):
        yield part


class ForecastList:
    """The forecasts of many links, in the order of their ids."""

    def __init__(
        self, cache: ForecastCache, entries: Mapping[str, CacheEntry], options: ForecastOptions, *, stale: bool
    ) -> None:
        now = cache.now()
        self.options, self.stale = options, stale
        self._forecasts = [(entry, *cache.current(entry, now)) for _, entry in sorted(entries.items())]
        self._profiles: dict[int, LinkProfile | None] = {}
        if options.needs_profile:
            known = [(entry, forecast) for entry, forecast, _ in self._forecasts if forecast is not None]
            profiles = read_profiles(cache, known, stale=stale)
            self._profiles, self.stale = profiles.by_key, stale or profiles.unreachable
            self._forecasts = [
                (entry, forecast if entry.key.link.link_key in self._profiles else None, age)
                for entry, forecast, age in self._forecasts
            ]

    def tag(self, *also: object) -> str:
        """Return a weak entity tag that changes with a forecast or with what else is given, but not with their age."""
        parts = [_without_forecast(entry) if one is None else one.identity() for entry, one, _ in self._forecasts]
        text = repr((self.options, self.stale, also, parts))
        return f'W/"{hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()}"'

    def parts(self) -> Iterator[list[Document]]:
        """Yield the documents of the links, some at a time."""
        n = max(1, ITEMS_A_PART // self.options.horizons)
        for begin in range(0, len(self._forecasts), n):
            yield [self._document(*one) for one in self._forecasts[begin : begin + n]]

    def _document(self, entry: CacheEntry, forecast: IssuedForecast | None, age: int) -> Document:
        if forecast is None:
            return _without_forecast(entry)
        return self.options.listed_document(forecast, self._profiles.get(entry.key.link.link_key), age)


def _without_forecast(entry: CacheEntry) -> Document:
    status = "no_counts" if entry.key.as_of is None else "failed"
    return {"link_id": entry.key.link.link_id, "status": status, "forecasts": []}


def _json(listed: ForecastList) -> Iterator[bytes]:
    return _object({"stale": listed.stale}, "links", listed.parts())


def _csv(listed: ForecastList) -> Iterator[bytes]:
    """Yield a row for each link and horizon; a link without a forecast has a row with its status alone."""
    columns = [*NETWORK_COLUMNS, *level_columns(listed.options.levels)]
    yield csv_lines(columns, [dict(zip(columns, columns, strict=True))]).encode()
    for links in listed.parts():
        rows = (
            {"link_id": link["link_id"], "status": link["status"], **as_row(item)}
            for link in links
            for item in link["forecasts"] or [{}]
        )
        yield csv_lines(columns, rows).encode()


def _feature_collection(listed: ForecastList, geometries: Mapping[str, dict[str, Any] | None]) -> Iterator[bytes]:
    """Return a GeoJSON FeatureCollection (RFC 7946), a feature for each link."""
    nothing = dict.fromkeys(FORECAST_COLUMNS)
    features = (
        [
            {
                "type": "Feature",
                "id": link["link_id"],
                "geometry": geometries.get(link["link_id"]),
                # Mapping tools style features by plain properties: those of the nearest forecast are repeated as such.
                "properties": {**(link["forecasts"][0] if link["forecasts"] else nothing), **link},
            }
            for link in links
        ]
        for links in listed.parts()
    )
    return _object({"type": "FeatureCollection", "stale": listed.stale}, "features", features)


def _object(head: Document, name: str, parts: Iterable[list[Document]]) -> Iterator[bytes]:
    """Yield a JSON object in parts: its first fields, and a list under a last name."""
    yield encode(head | {name: []})[:-2]
    separator = b""
    for items in parts:
        yield separator + b",".join(map(encode, items))
        separator = b","
    yield b"]}"


def _read_geometries(engine: Engine, link_ids: Collection[str]) -> dict[str, dict[str, Any] | None]:
    with reading(engine) as session:
        return {link_id: link.geometry for link_id, link in stored_links(session, link_ids).items()}


def wanted_links(engine: Engine, links: str | None, bbox: str | None, upstream: str | None) -> set[str] | None:
    """Return the ids of links that pass a caller's filters; None for all."""
    passed = [] if links is None else [{name for name in map(str.strip, links.split(",")) if name}]
    if bbox is not None or upstream is not None:
        with reading(engine) as session:
            names = {link.link_key: link.link_id for link in all_links(session)}
            if bbox is not None:
                box = _parse_box(bbox)
                passed.append({names[key] for key, other in link_boxes(session).items() if _touch(other, box)})
            if upstream is not None:
                passed.append({names[key] for key in upstream_of(session, upstream)})
    return set.intersection(*passed) if passed else None


def _touch(one: Box, other: Box) -> bool:
    (left, low, right, high), (west, south, east, north) = one, other
    spans = any if west > east else all  # across the 180th meridian a box is two, and either will do
    return spans((left <= east, right >= west)) and low <= north and high >= south


def _parse_box(text: str) -> Box:
    try:
        west, south, east, north = (float(part) for part in text.split(","))
    except ValueError:
        raise Invalid.field("bbox", text, BOX_RULE) from None
    if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90):
        raise Invalid.field("bbox", text, BOX_RULE)
    return west, south, east, north
