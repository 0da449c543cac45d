"""Old rows removed by schedule, months dropped as a whole, months made ahead."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select
from typer.testing import CliRunner

from app.cli import cli
from app.core import partitions
from app.core.database import open_database, reading, writing
from app.core.partitions import ensure_months, existing_months, month_begin, month_of
from app.counts.tables import Count, CountCorrection
from app.forecasts.profile_fallback import DAYS as PROFILE_DAYS
from app.forecasts.tables import Forecast
from app.links.tables import Link
from app.maintenance.prune import Cutoffs, prune
from app.maintenance.scheduled import Maintenance
from app.maintenance.tables import Upkeep
from app.settings import Settings, settings_from_environment
from app.training.request import DEFAULT_DAYS
from app.training.tables import RetrainRun
from tests.support.databases import on_sqlite
from tests.support.services import running_worker
from tests.support.stored import put_rows
from tests.support.waiting import wait_until

DAY = 86_400
NOW = datetime.now(UTC)
THIS_MONTH = month_of(int(NOW.timestamp()))
LONG_AGO = NOW - timedelta(days=800)
ONLY_POSTGRESQL = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_database(Settings(database_url=database_url).database_url)
    yield opened
    opened.dispose()


def fill(engine: Engine, months: int = 12) -> None:
    """Store ten slots at the beginning of each of the last months, and the latest slot that has ended."""
    last = int(NOW.timestamp()) // 900 * 900 - 900
    begins = [month_begin(THIS_MONTH - i) for i in range(1, months)]
    slots = [begin + 900 * i for begin in begins for i in range(10)] + [last]
    with writing(engine) as session:
        row = {"name": "", "zone": "UTC", "slot_minutes": 15, "created_at": NOW, "updated_at": NOW}
        session.execute(insert(Link), [{"link_key": k, "link_id": f"L{k}", **row} for k in (1, 2)])
        counts = [{"link_key": k, "slot_start": s, "count": 1, "quality": 0} for k in (1, 2) for s in slots]
        put_rows(session, Count, counts)
        session.execute(insert(CountCorrection), [one | {"replaced_at": NOW} for one in counts[:5]])
        given = {"model_version": 0, "expected": 1.0, "level": 0.9, "method": 4, "filled_lags": 0, "issued_at": 0}
        rows = [{"link_key": 1, "slot_start": s, "horizon": h, **given} for s in slots for h in (1, 2)]
        put_rows(session, Forecast, rows)


def rows_of(engine: Engine, table: Any, *where: Any) -> int:
    with reading(engine) as session:
        return int(session.scalar(select(func.count()).select_from(table).where(*where)) or 0)


def months(engine: Engine, table: str = "counts") -> set[int]:
    with engine.connect() as connection:
        return existing_months(connection, table)


@ONLY_POSTGRESQL
class TestDropping:
    def test_old_months_go_as_a_whole_and_a_partly_old_one_row_by_row(self, engine):
        fill(engine)
        cutoff = month_begin(THIS_MONTH - 5) + 4 * 900  # four of that month's ten slots are old
        old = {table: rows_of(engine, table, table.slot_start < cutoff) for table in (Count, Forecast)}
        assert old == {Count: 2 * 64, Forecast: 2 * 64}
        before = {table: rows_of(engine, table) for table in old}
        reported: list[tuple[str, int]] = []
        prune(engine, Cutoffs(cutoff, None), lambda table, n: reported.append((table, n)))
        assert {table: rows_of(engine, table) for table in old} == {table: before[table] - old[table] for table in old}
        assert rows_of(engine, Count, Count.slot_start < cutoff) == 0
        assert sum(n for table, n in reported if table == "counts") == old[Count]
        assert months(engine) == months(engine, "forecasts") == set(range(THIS_MONTH - 5, THIS_MONTH + 1))
        assert [n for table, n in reported if table == "counts"][:6] == [20] * 6  # a month each
        with writing(engine) as session:  # late counts of a month that went bring it back
            put_rows(session, Count, [{"link_key": 1, "slot_start": cutoff - 90 * DAY, "count": 1, "quality": 0}])
        assert month_of(cutoff - 90 * DAY) in months(engine)

    def test_a_month_in_use_is_emptied_row_by_row_and_dropped_the_next_time(self, engine, monkeypatch):
        monkeypatch.setattr(partitions, "DROP_TRIES", 2)
        monkeypatch.setattr(partitions, "DROP_PAUSE_SECONDS", 0.0)
        fill(engine, months=5)
        cutoff = month_begin(THIS_MONTH - 2)
        gone: Counter[str] = Counter()

        def removed(table: str, n: int) -> None:
            gone[table] += n

        with reading(engine) as session:
            session.scalar(select(func.count()).select_from(Count))  # and the transaction stays open
            prune(engine, Cutoffs(cutoff, None), removed)
            assert rows_of(engine, Count, Count.slot_start < cutoff) == 0
            assert gone["counts"] == 40
        assert min(months(engine)) == THIS_MONTH - 4
        assert min(months(engine, "forecasts")) == THIS_MONTH - 2  # these were not read
        prune(engine, Cutoffs(cutoff, None), removed)
        assert min(months(engine)) == THIS_MONTH - 2
        assert gone["counts"] == 40

    def test_what_others_may_believe_to_be_there_is_not_dropped(self, engine):
        fill(engine, months=2)
        prune(engine, Cutoffs(month_begin(THIS_MONTH + 1), None), lambda *_: None)
        assert rows_of(engine, Count) == 0
        assert THIS_MONTH in months(engine)

    def test_empty_months_go_but_for_those_around_this_one(self, engine):
        fill(engine, months=5)
        begins = [0, month_begin(THIS_MONTH + 1), month_begin(THIS_MONTH + 2), month_begin(1559)]
        with writing(engine) as session:
            for table in ("counts", "forecasts"):
                ensure_months(session, table, begins)
        gone: Counter[str] = Counter()
        prune(engine, Cutoffs(0, None), lambda table, n: gone.update({table: n}))
        assert +gone == {"empty_months": 4}
        kept = set(range(THIS_MONTH - 4, THIS_MONTH + 3))
        assert months(engine) == months(engine, "forecasts") == kept

    def test_a_month_that_is_written_to_meanwhile_stays(self, engine):
        fill(engine, months=5)
        assert partitions.drop_month(engine, "counts", THIS_MONTH - 4, served=False, only_empty=True) is None
        assert min(months(engine)) == THIS_MONTH - 4
        assert rows_of(engine, Count, Count.slot_start < month_begin(THIS_MONTH - 3)) > 0


def settings_for(database_url: str, **more: Any) -> Settings:
    return Settings(database_url=database_url, **({"prune_schedule": "* * * * *", "prune_days": 60} | more))


def upkeep_row(engine: Engine) -> Upkeep | None:
    with reading(engine) as session:
        return session.get(Upkeep, "prune")


def put_upkeep(engine: Engine, **more: Any) -> None:
    row = {"kind": "prune", "moment": LONG_AGO, "worker": "w", "started_at": NOW, "heartbeat_at": datetime.now(UTC)}
    with writing(engine) as session:
        session.add(Upkeep(**(row | {"finished_at": NOW} | more)))


def maintenance(engine: Engine, settings: Settings, stop: threading.Event | None = None) -> Maintenance:
    return Maintenance(engine, settings, "w", stop or threading.Event())


class TestSchedule:
    def test_a_new_schedule_is_not_behind_with_what_came_before_it(self, engine, database_url):
        fill(engine)
        before = rows_of(engine, Count)
        keeper = maintenance(engine, settings_for(database_url, prune_schedule="0 0 1 1 *"))
        keeper.step()
        assert upkeep_row(engine) is None
        assert rows_of(engine, Count) == before
        put_upkeep(engine)  # it was seen to once: a moment missed since is made up
        keeper.step()
        row = upkeep_row(engine)
        assert row is not None
        assert (row.moment.month, row.moment.day, row.detail) == (1, 1, None)
        cutoff = int(time.time()) - 60 * DAY
        assert rows_of(engine, Count, Count.slot_start < cutoff) == 0
        assert row.figures is not None
        assert row.figures["counts_removed"] == before - rows_of(engine, Count) > 0

    @on_sqlite
    def test_days_that_something_needs_are_kept_and_the_refusal_is_stored(self, engine, database_url, caplog):
        fill(engine)
        put_upkeep(engine)
        with writing(engine) as session:
            session.add(
                RetrainRun(
                    state="queued", algorithm="KR", parameters={"days": 90}, activate="never", requested_by="x",
                    requested_at=NOW,
                )
            )  # fmt: skip
        before = rows_of(engine, Count)
        maintenance(engine, settings_for(database_url)).step()
        assert rows_of(engine, Count) == before
        row = upkeep_row(engine)
        assert row is not None
        assert row.detail is not None
        assert "FLOWCAST_PRUNE_DAYS=60 is refused; it must be at least 90 (a retrain run" in row.detail
        assert "nothing was pruned" in caplog.text

    def test_what_a_worker_did_not_finish_is_finished(self, engine, database_url):
        fill(engine)
        before = rows_of(engine, Count)
        put_upkeep(engine, worker="other", finished_at=None)
        maintenance(engine, settings_for(database_url)).step()
        assert rows_of(engine, Count) < before
        row = upkeep_row(engine)
        assert row is not None
        assert (row.worker, row.finished_at is None) == ("w", False)

    @on_sqlite
    def test_a_worker_that_is_stopped_leaves_the_rest_for_later(self, engine, database_url):
        fill(engine)
        put_upkeep(engine, finished_at=None)
        stop = threading.Event()
        stop.set()
        maintenance(engine, settings_for(database_url), stop).step()
        row = upkeep_row(engine)
        assert row is not None
        assert row.finished_at is None


@ONLY_POSTGRESQL
def test_the_worker_prunes_by_schedule_once_of_two_and_makes_months_ahead(engine, database_url, tmp_path: Path):
    fill(engine)
    put_upkeep(engine)
    before, newer = rows_of(engine, Count), rows_of(engine, Count, Count.slot_start > time.time() - 60 * DAY)
    settings = {
        "FLOWCAST_CLOCK": "wall",
        "FLOWCAST_PRUNE_SCHEDULE": f"{NOW:%M %H %d %m} *",  # once: the last moment it names has just been
        "FLOWCAST_PRUNE_DAYS": "60",
    }

    def is_done() -> bool:
        row = upkeep_row(engine)
        pruned = row is not None and row.finished_at not in (None, NOW)
        return pruned and THIS_MONTH + 2 in months(engine, "forecasts")

    with (
        running_worker(database_url, tmp_path, **settings),
        running_worker(database_url, tmp_path, **settings),
    ):
        wait_until(is_done, explain=(tmp_path / "worker.log").read_text)
    lines = [json.loads(line) for line in (tmp_path / "worker.log").read_text().splitlines()]
    pruned = [line for line in lines if line["message"] == "pruned"]
    assert [line["counts_removed"] for line in pruned] == [before - rows_of(engine, Count)]
    assert rows_of(engine, Count, Count.slot_start < NOW.timestamp() - 60 * DAY) == 0
    assert rows_of(engine, Count, Count.slot_start > time.time() - 60 * DAY) == newer
    for table in ("counts", "forecasts"):
        assert months(engine, table) >= {THIS_MONTH, THIS_MONTH + 1, THIS_MONTH + 2}
        assert min(months(engine, table)) >= THIS_MONTH - 3


class TestSettings:
    @pytest.mark.parametrize("command", ["worker", "serve"])
    def test_a_schedule_without_days_is_refused_at_the_start(self, command, monkeypatch):
        monkeypatch.setenv("FLOWCAST_PRUNE_SCHEDULE", "15 1 * * *")
        settings_from_environment.cache_clear()
        refused = CliRunner().invoke(cli, [command])
        settings_from_environment.cache_clear()
        assert refused.exit_code == 2
        assert "FLOWCAST_PRUNE_SCHEDULE" in refused.stderr
        assert "it must go with FLOWCAST_PRUNE_DAYS or FLOWCAST_PRUNE_RECORD_DAYS" in refused.stderr

    def test_no_fewer_days_than_are_always_needed(self):
        least = max(DEFAULT_DAYS, PROFILE_DAYS)
        assert Settings(prune_schedule="15 1 * * *", prune_days=least).prune_days == least
        with pytest.raises(ValueError, match="at least 56, which retraining reads"):
            Settings(prune_schedule="15 1 * * *", prune_days=least - 1)
        with pytest.raises(ValueError, match="cron syntax"):
            Settings(prune_schedule="daily", prune_days=least)
