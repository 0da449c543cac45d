"""Forecasts as CSV and as GeoJSON, from their JSON documents."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fastapi import Response
from sqlalchemy import Engine

from app.core.database import reading
from app.forecasts.responses import Document
from app.forecasts.schemas import ForecastOut, PastForecastOut, PastForecasts
from app.http.csv import CsvResponse, csv_content
from app.links.queries import stored_links
from app.links.schemas import GEOJSON

LINK_COLUMNS = ["link_id", *ForecastOut.model_fields]
NETWORK_COLUMNS = ["link_id", "status", *ForecastOut.model_fields]
PAST_COLUMNS = ["link_id", *PastForecastOut.model_fields]
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
}
NETWORK_CONTENT = csv_content(NETWORK_COLUMNS) | {GEOJSON: {"schema": FEATURE_COLLECTION}}
Geometries = Mapping[str, dict[str, Any] | None]


def link_csv(document: Document, headers: Mapping[str, str] | None) -> Response:
    """Return one link's forecasts as CSV, a row for each horizon."""
    rows = ({"link_id": document["link_id"], **forecast} for forecast in document["forecasts"])
    return CsvResponse(LINK_COLUMNS, rows, headers)


def network_csv(document: Document, headers: Mapping[str, str]) -> Response:
    """Return the forecasts of many links as CSV; a link without a forecast has a row with its status alone."""

    def rows() -> Iterator[dict[str, Any]]:
        for link in document["links"]:
            for forecast in link["forecasts"] or [{}]:
                yield {"link_id": link["link_id"], "status": link["status"], **forecast}

    return CsvResponse(NETWORK_COLUMNS, rows(), headers)


def past_csv(page: PastForecasts, headers: Mapping[str, str]) -> Response:
    """Return a page of past forecasts as CSV."""
    rows = ({"link_id": page.link_id, **forecast.model_dump(mode="json")} for forecast in page.forecasts)
    return CsvResponse(PAST_COLUMNS, rows, headers)


def read_geometries(engine: Engine, link_ids: Collection[str]) -> Geometries:
    """Read the geometries of links by id; None where a link has none."""
    with reading(engine) as session:
        return {link_id: link.geometry for link_id, link in stored_links(session, link_ids).items()}


def network_geojson(document: Document, geometries: Geometries) -> str:
    """Write the forecasts of many links as a GeoJSON FeatureCollection (RFC 7946), a feature for each link."""
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
