"""Functions that store links, counts, forecasts and retrain runs in a database directly, and read rows."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, insert, text
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from app.core.database import reading, writing
from app.core.partitions import ensure_months
from app.counts.tables import QUALITIES, Count, CountCorrection
from app.demo.city import City
from app.forecasts.tables import Forecast
from app.links.queries import LinkInfo, all_links, link_or_404
from app.links.tables import Link
from app.training.request import request_run

SLOT = 900
# Monday, 2025-09-01, 00:00 in UTC.
MONDAY = int(datetime(2025, 9, 1, tzinfo=UTC).timestamp())
FORECAST = {
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
QUICK_RUN = {"lags": 4, "n_neighbors": 4, "held_out_days": 4}


def utc(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def put_rows(session: Session, table: type[Count] | type[Forecast], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, after creating the partitions of their months."""
    ensure_months(session, table.__tablename__, {row["slot_start"] for row in rows})
    session.execute(insert(table), rows)


def put_counts(client: TestClient, link_id: str, counts: Mapping[int, int], quality: str = "observed") -> None:
    """Store counts by the Unix second of their slot."""
    runtime = client.app.state  # type: ignore[attr-defined]
    with writing(runtime.engine) as session:
        link = link_or_404(session, link_id)
        rows = [
            {"link_key": link.link_key, "slot_start": slot, "count": count, "quality": QUALITIES.index(quality)}
            for slot, count in counts.items()
        ]
        put_rows(session, Count, rows)


def correct_count(client: TestClient, link_id: str, slot: int, count: int, at: datetime) -> None:
    """Replace a count and store the old one as a correction."""
    with writing(client.app.state.engine) as session:  # type: ignore[attr-defined]
        old = session.get_one(Count, (link_or_404(session, link_id).link_key, slot))
        session.add(
            CountCorrection(
                link_key=old.link_key, slot_start=slot, count=old.count, quality=old.quality, replaced_at=at
            )
        )
        old.count = count


def put_forecasts(client: TestClient, link_id: str, forecasts: Iterable[Mapping[str, Any]]) -> None:
    """Store forecasts, with defaults for missing fields."""
    with writing(client.app.state.engine) as session:  # type: ignore[attr-defined]
        key = link_or_404(session, link_id).link_key
        put_rows(session, Forecast, [{**FORECAST, **row, "link_key": key} for row in forecasts])


def add_link(engine: Engine, link_id: str = "Ba", **values: Any) -> LinkInfo:
    """Store a link."""
    now = datetime.now(UTC)
    given = {"name": link_id, "zone": "Europe/Berlin", "slot_minutes": 15} | values
    with writing(engine) as session:
        session.add(Link(link_id=link_id, created_at=now, updated_at=now, **given))
        session.flush()
        return link_or_404(session, link_id)


def store_city(engine: Engine, city: City, *, up_to: int | None = None) -> None:
    """Store a city's links and counts, moved by whole days to end on the day before ``up_to``, in Unix seconds."""
    now = datetime.now(UTC)
    end = int(city.grid.start(city.first_slot + len(next(iter(city.counts.values())))).timestamp())
    moved = 0 if up_to is None else (up_to - end) // 86400 * 86400
    with writing(engine) as session:
        for link_id in city.counts:
            session.add(
                Link(link_id=link_id, name=link_id, zone=city.zone, slot_minutes=15, created_at=now, updated_at=now)
            )
        session.flush()
        keys = {link.link_id: link.link_key for link in all_links(session)}
        rows = [
            {
                "link_key": keys[link_id],
                "slot_start": int(city.grid.start(city.first_slot + i).timestamp()) + moved,
                "count": int(n),
                "quality": 0,
            }
            for link_id, counts in city.counts.items()
            for i, n in enumerate(counts)
            if n == n
        ]
        put_rows(session, Count, rows)


def queue_run(
    engine: Engine, parameters: Mapping[str, Any] = QUICK_RUN, algorithm: str = "KR", activate: Any = "always"
) -> int:
    """Queue a retrain run over all links; return its number."""
    with writing(engine) as session:
        links = all_links(session)
        run, _ = request_run(session, links, algorithm, dict(parameters), activate=activate, requested_by="tests")
        return run.id


def select_rows(engine: Engine, query: str, **given: object) -> list[tuple[Any, ...]]:
    """Return the rows that a query finds."""
    with reading(engine) as session:
        return [tuple(row) for row in session.execute(text(query), given)]
