"""The forecasts of many links: filter the links, and return the response as JSON, CSV or GeoJSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fastapi import Request, Response
from sqlalchemy import Engine

from app.core.database import reading
from app.core.errors import Invalid
from app.forecasts.cache import STALE_HEADER, CacheEntry, ForecastCache
from app.forecasts.issued_forecast import Document, encode, listed_document
from app.forecasts.schemas import EXAMPLE, NETWORK_COLUMNS, STATUS_EXAMPLE, ForecastOut
from app.http.csv import CSV, CsvResponse, csv_content
from app.http.requests import JSON, is_unchanged
from app.links.geometry import Box
from app.links.queries import all_links, link_boxes, stored_links, upstream_of
from app.links.schemas import GEOJSON

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
    cache: ForecastCache, wanted: Collection[str] | None, horizons: int, media_type: str, request: Request
) -> Response:
    """Return the forecasts of the wanted links, or of all, in a media type; 304 where the caller has them already."""
    entries, stale = cache.latest(wanted)
    listed = ForecastList(cache, entries, horizons, stale=stale)
    geometries = _read_geometries(cache.engine, entries) if media_type == GEOJSON else {}
    tag = listed.tag(media_type, sorted(geometries.items()))
    headers = {"ETag": tag, "Cache-Control": "no-cache, private", "Vary": "Accept"} | (STALE_HEADER if stale else {})
    if is_unchanged(request, tag):
        return Response(status_code=304, headers=headers)
    document = listed.document()
    if media_type == CSV:
        return CsvResponse(NETWORK_COLUMNS, _rows(document), headers)
    if media_type == GEOJSON:
        return Response(_feature_collection(document, geometries), headers=headers, media_type=GEOJSON)
    return Response(encode(document), headers=headers, media_type=JSON)


class ForecastList:
    """The forecasts of many links, in the order of their ids."""

    def __init__(self, cache: ForecastCache, entries: Mapping[str, CacheEntry], horizons: int, *, stale: bool) -> None:
        now, self._stale, self._horizons = cache.now(), stale, horizons
        self._forecasts = [(entry, *cache.current(entry, now)) for _, entry in sorted(entries.items())]

    def tag(self, *also: object) -> str:
        """Return a weak entity tag that changes with a forecast or with what else is given, but not with their age."""
        parts = [_without_forecast(entry) if one is None else one.identity() for entry, one, _ in self._forecasts]
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


def _rows(document: Document) -> Iterator[Document]:
    """Yield a row for each link and horizon; a link without a forecast has a row with its status alone."""
    for link in document["links"]:
        for forecast in link["forecasts"] or [{}]:
            yield {"link_id": link["link_id"], "status": link["status"], **forecast}


def _read_geometries(engine: Engine, link_ids: Collection[str]) -> dict[str, dict[str, Any] | None]:
    with reading(engine) as session:
        return {link_id: link.geometry for link_id, link in stored_links(session, link_ids).items()}


def _feature_collection(document: Document, geometries: Mapping[str, dict[str, Any] | None]) -> str:
    """Return a GeoJSON FeatureCollection (RFC 7946), a feature for each link."""
    nothing = dict.fromkeys(ForecastOut.model_fields)
    features = [
        {
            "type": "Feature",
            "id": link["link_id"],
            "geometry": geometries.get(link["link_id"]),
            # Mapping tools style features by plain properties: those of the nearest forecast are repeated as such.
            "properties": {**(link["forecasts"][0] if link["forecasts"] else nothing), **link},
        }
        for link in document["links"]
    ]
    return json.dumps({"type": "FeatureCollection", "stale": document["stale"], "features": features})


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
