"""Counts and forecasts put straight into the database of a service under test."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from app.counts.tables import QUALITIES, Count, CountCorrection
from app.database import writing
from app.forecasts.tables import Forecast
from app.links.queries import link_or_404
from app.monthly_tables import ensure_months

SLOT = 900
# Monday, 2025-09-01, 00:00 in UTC.
MONDAY = int(datetime(2025, 9, 1, tzinfo=UTC).timestamp())


def utc(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def put_rows(session: Session, table: type[Count] | type[Forecast], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows as they are, into months that may have to be made first."""
    ensure_months(session, table.__tablename__, {row["slot_start"] for row in rows})
    session.execute(insert(table), rows)


def put_counts(client: TestClient, link_id: str, counts: Mapping[int, int], quality: str = "observed") -> None:
    """Store counts by the Unix second of their slot, and let the clock know."""
    runtime = client.app.state.runtime  # type: ignore[attr-defined]
    with writing(runtime.engine) as session:
        link = link_or_404(session, link_id)
        rows = [
            {"link_key": link.link_key, "slot_start": slot, "count": count, "quality": QUALITIES.index(quality)}
            for slot, count in counts.items()
        ]
        put_rows(session, Count, rows)
    runtime.clock.seen(max(counts) + link.slot_seconds)


def correct_count(client: TestClient, link_id: str, slot: int, count: int, at: datetime) -> None:
    """Replace a count, and keep the old one."""
    with writing(client.app.state.runtime.engine) as session:  # type: ignore[attr-defined]
        old = session.get_one(Count, (link_or_404(session, link_id).link_key, slot))
        session.add(
            CountCorrection(
                link_key=old.link_key, slot_start=slot, count=old.count, quality=old.quality, replaced_at=at
            )
        )
        old.count = count


def put_forecasts(client: TestClient, link_id: str, forecasts: Iterable[Mapping[str, Any]]) -> None:
    """Store forecasts; what is left out is filled in."""
    usual: dict[str, Any] = {
        "horizon": 1,
        "model_version": 1,
        "lower": None,
        "upper": None,
        "level": 0.9,
        "usual": None,
        "method": 0,
        "degraded_reason": None,
        "filled_lags": 0,
        "issued_at": 0,
    }
    with writing(client.app.state.runtime.engine) as session:  # type: ignore[attr-defined]
        key = link_or_404(session, link_id).link_key
        put_rows(session, Forecast, [{**usual, **row, "link_key": key} for row in forecasts])
