"""Forecasts as the JSON documents that responses and events carry."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from app.forecasts.compute import IssuedForecast

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
            "slot_start": rfc3339(issued.slot(h + 1)),
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
        for h in range(horizons)
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
