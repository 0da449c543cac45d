"""Rows for every table of a database whose values are difficult to copy, and the rows of a database."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, insert, text

from app.core.database import open_database, writing
from app.core.partitions import ensure_months
from app.core.schema import upgrade_schema
from app.counts.tables import Count, CountCorrection
from app.events.tables import Webhook
from app.forecasts.tables import Forecast
from app.keys.tables import ApiKey, AuditEntry
from app.links.tables import Link, UpstreamLink
from app.maintenance.copy_database import BATCH, all_tables, rows_of
from app.maintenance.tables import Upkeep
from app.registry.tables import Activation, Ensemble, ModelVersion
from app.settings import Settings
from app.training.tables import RetrainLink, RetrainRun
from tests.support.stored import put_rows

AT = datetime(2026, 3, 29, 1, 59, 59, 999_999, tzinfo=UTC)  # one microsecond before a clock change
NAME = "Straße „Łódź“ \N{SNOWMAN}\t\\N 'quoted' \"twice\"\nnext line \N{GRINNING FACE}"


def engine_of(url: str) -> Engine:
    """Open a database by its address."""
    return open_database(Settings(database_url=url).database_url)


def fill(url: str) -> None:
    """Insert one or more rows into every table, with values that are difficult to copy."""
    engine = engine_of(url)
    upgrade_schema(engine)
    with writing(engine) as session:
        for key, link_id in ((1, "A"), (7, "b:._-"), (9, "gone")):
            geometry = {"type": "LineString", "coordinates": [[0.1, 1e-7], [1.0, 2]], "π": NAME}
            row = {"slot_minutes": 15, "zone": "Europe/Berlin", "created_at": AT, "updated_at": AT}
            session.execute(
                insert(Link).values(
                    link_key=key,
                    link_id=link_id,
                    name=NAME,
                    capacity=0.1 + 0.2 if key == 1 else None,
                    geometry=geometry if key == 1 else None,
                    **row,
                )
            )
        session.execute(insert(UpstreamLink).values(link_key=1, upstream_key=7))
        slots = [
            {"link_key": key, "slot_start": 900 * i, "count": i % 7, "quality": i % 3}
            for key, n in ((1, BATCH + 100), (7, 100))  # of the second, all in another batch
            for i in range(n)
        ]
        far = {"link_key": 7, "slot_start": 4_000_000_000, "count": 2_147_483_647, "quality": 0}
        put_rows(session, Count, [*slots, far])
        session.execute(
            insert(CountCorrection).values(id=41, link_key=1, slot_start=0, count=3, quality=2, replaced_at=AT)
        )
        ensure_months(session, "forecasts", [900])
        forecast = {"link_key": 1, "slot_start": 900, "horizon": 1, "level": 0.9, "method": 0, "filled_lags": 0}
        session.execute(
            insert(Forecast).values(
                **forecast, model_version=1, expected=1 / 3, lower=5e-324, upper=1.7e308, usual=None,
                degraded_reason=NAME, issued_at=1_774_749_599_999_999, experts=bytes(range(256)),
            )
        )  # fmt: skip
        session.execute(
            insert(Forecast).values(
                **forecast, model_version=0, expected=0.0, lower=None, upper=None, usual=2.5,
                degraded_reason=None, issued_at=1,
            )
        )  # fmt: skip
        for key_id in ("b-", "B_", "a", "Ä", "z"):  # in another order where the language has a say
            session.execute(
                insert(ApiKey).values(key_id=key_id, name=NAME, hash="0" * 64, scopes="read", created_at=AT)
            )
        session.execute(
            insert(ModelVersion).values(
                id=5, link_key=1, version=1, state="active", algorithm="KR_SML", folder="A/1", fingerprint="f" * 64,
                rank=3, size_bytes=5_000_000_000, trained_from=AT - timedelta(days=22), trained_to=AT,
                about={"held_out": {"rmse": 1e-300, "n": 10**20, "text": NAME}, "none": None}, created_at=AT,
            )
        )  # fmt: skip
        session.execute(
            insert(Ensemble).values(
                link_key=1, as_of=900, state=bytes(range(255, -1, -1)), start_as_of=None, start=b"\\x00", revision=7
            )
        )
        session.execute(
            insert(Upkeep).values(
                kind="prune", moment=AT, worker="w", started_at=AT, heartbeat_at=AT, figures={"counts_removed": 10**20}
            )
        )
        session.execute(
            insert(Activation).values(
                id=3, link_key=1, version=1, activated_at=AT, activated_by="schedule", figures={"rmse": None}
            )
        )
        session.execute(
            insert(RetrainRun).values(
                id=12, state="succeeded", algorithm="KR_SML", parameters={}, activate="never", requested_by="someone",
                requested_at=AT, cancel_requested=True,
            )
        )  # fmt: skip
        session.execute(insert(RetrainLink).values(run_id=12, link_key=1, state="done", figures=None))
        session.execute(text("UPDATE retrain_links SET figures = NULL"))  # beside JSON's own null
        session.execute(insert(RetrainLink).values(run_id=12, link_key=7, state="failed", figures=None))
        session.execute(
            insert(AuditEntry).values(
                id=2, at=AT, key_id="k", key_name=NAME, method="PUT", path="/v1/links/ä", status=201, request_id="r",
                client="::1",
            )
        )  # fmt: skip
        session.execute(
            insert(Webhook).values(url="https://h/ü", events="forecast", secret="s", created_at=AT, created_by="k",
                                   last_activation=3, failures=0)
        )  # fmt: skip
    with writing(engine) as session:
        session.execute(text("DELETE FROM links WHERE link_id = 'gone'"))
    engine.dispose()


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all tables."""
    engine = engine_of(url)
    with engine.connect() as connection:
        found = {table.name: [tuple(row) for row in rows_of(connection, table)] for table in all_tables()}
    engine.dispose()
    return found
