"""``flowcast db prune``: what goes, what stays, and a service that goes on meanwhile."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text
from typer.testing import CliRunner, Result

from app.cli import cli
from app.core.database import open_database, reading, writing
from app.core.partitions import ensure_months
from app.counts.tables import Count, CountCorrection
from app.forecasts.tables import Forecast
from app.keys.tables import AuditEntry
from app.links.tables import Link
from app.maintenance import prune as pruning
from app.registry.tables import Activation, ModelVersion
from app.settings import Settings, settings_from_environment
from app.training.tables import RetrainLink, RetrainRun
from tests.support.databases import on_postgresql
from tests.support.services import FLOWCAST
from tests.support.stored import put_rows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.journey

DAY = 86_400
NEWEST = int(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp())  # start of the newest slot
NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=400)


@pytest.fixture(autouse=True)
def environment(database_url, monkeypatch) -> Iterator[None]:
    monkeypatch.setenv("FLOWCAST_DATABASE_URL", database_url)
    monkeypatch.setenv("FLOWCAST_CLOCK", "feed")
    settings_from_environment.cache_clear()
    yield
    settings_from_environment.cache_clear()


@pytest.fixture
def engine(database_url):
    opened = open_database(Settings(database_url=database_url).database_url)
    yield opened
    opened.dispose()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["db", "prune", *arguments])


def printed(done: Result) -> dict[str, int]:
    assert done.exit_code == 0, done.output
    return {name: int(n.replace(",", "")) for name, n in re.findall(r"│ (\w+)\s+│\s+([\d,]+) │", done.stdout)}


def put_link(session: Any, link_key: int) -> None:
    row = {"name": "", "zone": "UTC", "slot_minutes": 15, "created_at": LONG_AGO, "updated_at": LONG_AGO}
    session.execute(insert(Link).values(link_key=link_key, link_id=f"L{link_key}", **row))


def forecast_row(link_key: int, slot: int, horizon: int = 1) -> dict[str, Any]:
    return {
        "link_key": link_key, "slot_start": slot, "horizon": horizon, "model_version": 0, "expected": 1.0,
        "level": 0.9, "method": 4, "filled_lags": 0, "issued_at": 0,
    }  # fmt: skip


def fill(engine: Any, days: int = 100) -> None:
    """Store counts and forecasts every six hours, half of the counts corrected; link 3 has only old counts."""
    slots = [NEWEST - i * DAY // 4 for i in range(days * 4)]
    with writing(engine) as session:
        for key in (1, 2, 3):
            put_link(session, key)
        mine = {1: slots, 2: slots, 3: [slot - 200 * DAY for slot in slots[:8]]}
        counts = [{"link_key": k, "slot_start": s, "count": 1, "quality": 0} for k in mine for s in mine[k]]
        put_rows(session, Count, counts)
        session.execute(insert(CountCorrection), [one | {"replaced_at": NOW} for one in counts[::2]])
        horizons = range(1, 5)
        put_rows(session, Forecast, [forecast_row(c["link_key"], c["slot_start"], h) for c in counts for h in horizons])


def left(engine: Any, table: Any, *where: Any) -> int:
    with reading(engine) as session:
        return int(session.scalar(select(func.count()).select_from(table).where(*where)))


def test_old_slots_go_and_newer_ones_stay(engine):
    fill(engine)
    before = {table: left(engine, table) for table in (Count, CountCorrection, Forecast)}
    cutoff = NEWEST + 900 - 60 * DAY
    old = {table: left(engine, table, table.slot_start < cutoff) for table in before}
    assert all(old.values())
    expected = {table.__tablename__: n for table, n in old.items()}
    assert printed(run("--older-than", "60", "--dry-run")) == expected
    assert {table: left(engine, table) for table in before} == before  # it only looked
    assert printed(run("--older-than", "60")) == expected
    for table, n in before.items():
        assert left(engine, table) == n - old[table]
        assert left(engine, table, table.slot_start < cutoff) == 0
    assert left(engine, Count, Count.link_key == 3) == 0  # silent for longer than that
    assert printed(run("--older-than", "60")) == dict.fromkeys(expected, 0)


def test_a_part_at_a_time_removes_the_same(engine, monkeypatch):
    monkeypatch.setattr(pruning, "BATCH", 7)
    monkeypatch.setattr(pruning, "LEAST_PAUSE", 0.0)
    fill(engine, days=66)
    cutoff = NEWEST + 900 - 60 * DAY
    old = left(engine, Forecast, Forecast.slot_start < cutoff)
    stays = left(engine, Forecast) - old
    assert printed(run("--older-than", "60"))["forecasts"] == old
    assert (left(engine, Forecast), left(engine, Forecast, Forecast.slot_start < cutoff)) == (stays, 0)


def test_by_the_wall_clock_days_are_counted_from_now(engine, monkeypatch):
    monkeypatch.setenv("FLOWCAST_CLOCK", "wall")
    settings_from_environment.cache_clear()
    now = int(NOW.timestamp()) // 900 * 900
    with writing(engine) as session:
        put_link(session, 1)
        days = (1, 59, 61, 90)
        put_rows(session, Count, [{"link_key": 1, "slot_start": now - d * DAY, "count": 1, "quality": 0} for d in days])
    assert printed(run("--older-than", "60"))["counts"] == 2
    assert left(engine, Count) == 2


class TestRefusals:
    def test_fewer_days_than_retraining_reads(self, engine):
        fill(engine)
        refused = run("--older-than", "55")
        assert refused.exit_code == 2
        assert "--older-than=55 is refused; it must be at least 56 (retraining reads" in refused.stderr
        assert left(engine, Count) == 808
        assert run("--older-than", "55", "--force").exit_code == 0
        assert left(engine, Count) == 2 * 55 * 4

    def test_a_longer_lag_window_a_run_and_the_trigger_are_known(self, engine, monkeypatch):
        fill(engine)
        with writing(engine) as session:
            session.execute(
                insert(ModelVersion).values(
                    link_key=1, version=1, state="active", algorithm="KR_SML", folder="L1/1", fingerprint="f", rank=1,
                    trained_from=LONG_AGO, trained_to=NOW, created_at=NOW, about={"plan": {"lags": 96 * 70}},
                )
            )  # fmt: skip
        assert "at least 71 (the lag window" in run("--older-than", "60").stderr
        with writing(engine) as session:
            put_run(session, 1, "queued", None, parameters={"days": 90})
        assert "at least 90 (a retrain run" in run("--older-than", "80").stderr
        monkeypatch.setenv("FLOWCAST_RETRAIN_TRIGGER_COOL_DOWN_HOURS", "240")
        settings_from_environment.cache_clear()
        assert "--records-older-than=9 is refused; it must be at least 10" in run("--records-older-than", "9").stderr

    def test_no_days_given(self):
        refused = run()
        assert refused.exit_code == 2
        assert "--older-than DAYS" in refused.stderr

    def test_a_schema_that_is_behind(self, engine):
        from app.core.schema import downgrade_schema

        downgrade_schema(engine, "0001")
        refused = run("--older-than", "60")
        assert refused.exit_code == 2
        assert "flowcast db upgrade" in refused.stderr


def put_run(session: Any, run_id: int, state: str, finished_at: datetime | None, **more: Any) -> None:
    row = {
        "id": run_id, "state": state, "algorithm": "KR", "parameters": {}, "activate": "never", "requested_by": "x",
        "requested_at": LONG_AGO, "finished_at": finished_at, "cancel_requested": False,
    }  # fmt: skip
    session.execute(insert(RetrainRun).values(row | more))


def test_old_records_go_except_those_that_the_schedule_needs(engine):
    fill(engine, days=2)
    with writing(engine) as session:
        for run_id in range(1, 31):  # more than go at once
            put_run(session, run_id, "succeeded", LONG_AGO)
        put_run(session, 31, "failed", LONG_AGO, occasion="schedule 2025-01-01T03:00:00Z")
        put_run(session, 32, "succeeded", LONG_AGO, occasion="schedule 2025-02-01T03:00:00Z")
        put_run(session, 33, "succeeded", LONG_AGO, occasion="trigger 2025-02-01T04:00:00Z")
        put_run(session, 34, "running", None)
        put_run(session, 35, "succeeded", NOW)
        put_run(session, 36, "cancelled", LONG_AGO)  # the newest: its number must not be given again
        session.execute(
            insert(RetrainLink),
            [{"run_id": run_id, "link_key": 1, "state": "done"} for run_id in (1, 2, 32, 34, 36)],
        )
        entry = {"key_id": "k", "key_name": "k", "method": "GET", "path": "/", "status": 200, "request_id": "r"}
        for at in (LONG_AGO, LONG_AGO, NOW, LONG_AGO):
            session.execute(insert(AuditEntry).values(at=at, client="c", **entry))
        session.execute(insert(Activation).values(link_key=1, version=1, activated_at=LONG_AGO, activated_by="x"))
    expected = {"audit": 2, "retrain_runs": 31, "retrain_links": 2}
    assert printed(run("--records-older-than", "365", "--dry-run")) == expected
    assert printed(run("--records-older-than", "365")) == expected
    with reading(engine) as session:
        assert set(session.scalars(select(RetrainRun.id))) == {32, 33, 34, 35, 36}
        assert sorted(session.scalars(select(RetrainLink.run_id))) == [32, 34, 36]
        assert sorted(session.scalars(select(AuditEntry.id))) == [3, 4]
    assert left(engine, Activation) == 1
    assert left(engine, Count) == 24  # slots were not asked for


@on_postgresql
def test_empty_months_are_counted_and_go(engine):
    fill(engine)
    with writing(engine) as session:
        ensure_months(session, "counts", [0, 40 * DAY])
    assert printed(run("--older-than", "400", "--dry-run"))["empty_months"] == 2
    assert printed(run("--older-than", "400"))["empty_months"] == 2
    assert "empty_months" not in printed(run("--older-than", "400"))


SILENT = "L6"  # which had its last count long ago


def test_a_service_goes_on_during_a_prune_and_finds_a_link_without_counts(client, engine):
    n = 10_000
    with writing(engine) as session:
        for key in range(1, 7):
            put_link(session, key)
        series = {
            "sqlite": f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})",
            "postgresql": f"WITH n(i) AS (SELECT * FROM generate_series(1, {n}))",
        }[engine.dialect.name]
        old = "INSERT INTO counts {series} SELECT link_key, {newest} - 900 * i, 5, 0 FROM links, n WHERE link_key < 6"
        if engine.dialect.name == "sqlite":
            old = old.replace("INSERT INTO counts {series}", "{series} INSERT INTO counts")
        ensure_months(session, "counts", range(NEWEST - 900 * n, NEWEST, 900))
        session.execute(text(old.format(series=series, newest=NEWEST)))
        put_rows(session, Count, [{"link_key": 6, "slot_start": NEWEST - 200 * DAY, "count": 5, "quality": 0}])
    assert left(engine, Count) == 5 * n + 1
    silent = client.get(f"/v1/links/{SILENT}/forecast")
    assert silent.status_code == 200, silent.text
    command = [*FLOWCAST, "db", "prune", "--older-than", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        sent = 0
        while process.poll() is None or sent < 5:
            start = datetime.fromtimestamp(NEWEST + 900 * sent, UTC).isoformat()
            late = datetime.fromtimestamp(NEWEST - 900 * (n - sent % 1000), UTC).isoformat()  # of slots that are going
            batch = [{"link_id": f"L{k}", "slot_start": at, "count": k} for k in (1, 2) for at in (start, late)]
            answer = client.post("/v1/counts", json={"counts": batch})
            assert answer.status_code == 200, answer.text
            shown = client.get("/v1/links/L1/forecast").json()
            assert shown["forecasts"][0]["as_of_slot"] == start.replace("+00:00", "Z")
            sent += 1
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        output, problems = process.communicate()
    assert process.returncode == 0, problems
    assert b"counts" in output
    wait_until(lambda: client.get(f"/v1/links/{SILENT}/forecast").status_code == 409)
    assert client.get("/v1/links/L1/forecast").json() == shown
    newer = left(engine, Count, Count.slot_start >= NEWEST)
    assert newer == 2 * sent
    assert left(engine, Count, Count.slot_start >= NEWEST - 59 * DAY, Count.slot_start < NEWEST) == 5 * 59 * 96
