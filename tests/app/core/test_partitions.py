"""Counts and forecasts in months on PostgreSQL: moved there without loss, made when written to, few of them read."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, column, event, insert, select, table, text
from sqlalchemy.orm import Session

from app.core.clock import WallClock
from app.core.database import open_database, reading, writing
from app.core.partitions import (
    ensure_months,
    existing_months,
    month_begin,
    month_name,
    month_named,
    month_of,
    months_of,
)
from app.core.schema import check_schema, downgrade_schema, upgrade_schema
from app.counts.ingest import store_counts
from app.counts.queries import newest_slots, stored_span
from app.counts.tables import Count
from app.events.queries import latest_forecasts
from app.forecasts.queries import newest_forecast
from app.forecasts.tables import Forecast
from app.links.queries import all_links
from app.links.tables import Link
from app.settings import Settings
from tests.support.count_files import import_counts
from tests.support.databases import on_postgresql
from tests.support.postgresql import WAITING_SESSIONS
from tests.support.stored import put_rows
from tests.support.waiting import WAIT_SECONDS, wait_until

pytestmark = on_postgresql

AT = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_database(Settings(database_url=database_url).database_url)
    yield opened
    opened.dispose()


def put_links(engine: Engine, n: int = 2) -> None:
    row = {"name": "", "zone": "UTC", "slot_minutes": 15, "created_at": AT, "updated_at": AT}
    with writing(engine) as session:
        # By name, because some tests do so at a step at which the table has fewer columns.
        links = table("links", *map(column, ("link_key", "link_id", *row)))
        session.execute(insert(links), [{"link_key": i, "link_id": f"L{i}", **row} for i in range(1, n + 1)])


def forecast(link_key: int, slot: int, horizon: int = 1) -> dict[str, Any]:
    return {
        "link_key": link_key, "slot_start": slot, "horizon": horizon, "model_version": 0, "expected": 1 / 3,
        "lower": None, "upper": 1e300, "level": 0.9, "usual": None, "method": 4, "degraded_reason": "ä\n",
        "filled_lags": 0, "issued_at": slot,
    }  # fmt: skip


def store(session: Session, link_id: str, slots: list[int]) -> None:
    [link] = [one for one in all_links(session) if one.link_id == link_id]
    rows = np.array([(link.link_key, slot, slot % 100, 0) for slot in slots], dtype=np.int64)
    store_counts(session, [link], rows)


def stored_slots(engine: Engine, link_key: int) -> list[int]:
    with reading(engine) as session:
        return list(
            session.scalars(select(Count.slot_start).where(Count.link_key == link_key).order_by(Count.slot_start))
        )


def months_of_counts(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return {month_name(month) for month in existing_months(connection, "counts")}


@contextmanager
def questions_of_catalog(engine: Engine) -> Iterator[list[str]]:
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "pg_inherits" in statement:
            asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield asked
    event.remove(engine, "before_cursor_execute", note)


class TestMigration:
    def test_up_and_down_keep_every_row_and_rule(self, engine):
        downgrade_schema(engine, "0002")
        before = self.rules(engine)
        edges = [0, month_begin(1) - 900, month_begin(1), month_begin(672) - 900, month_begin(672), 4_000_000_000]
        slots = sorted({*edges, *range(1_700_000_100, 1_700_000_100 + 70 * DAY, DAY // 2)})
        put_links(engine)
        with writing(engine) as session:
            rows = [{"link_key": k, "slot_start": s, "count": s % 97, "quality": s % 3} for k in (1, 2) for s in slots]
            session.execute(insert(Count), rows)
            session.execute(insert(Forecast), [forecast(k, s, h) for k in (2, 1) for s in slots for h in (1, 2)])
        stored = self.contents(engine)
        assert [len(rows) for rows in stored] == [2 * len(slots), 4 * len(slots)]

        upgrade_schema(engine)
        assert self.contents(engine) == stored
        assert months_of_counts(engine) == {month_name(month_of(slot)) for slot in slots}
        assert self.kind(engine) == {"counts": "p", "forecasts": "p"}
        assert self.rules(engine) == before
        check_schema(engine)

        downgrade_schema(engine, "0002")
        assert self.contents(engine) == stored
        assert self.kind(engine) == {"counts": "r", "forecasts": "r"}
        assert self.rules(engine) == before
        upgrade_schema(engine)
        with writing(engine) as session:
            session.execute(text("DELETE FROM links WHERE link_key = 1"))  # takes its counts along, in every month
        assert [len(rows) for rows in self.contents(engine)] == [len(slots), 2 * len(slots)]

    @staticmethod
    def contents(engine: Engine) -> list[list[Any]]:
        with engine.connect() as connection:
            return [
                connection.execute(select(*columns).order_by(*columns[0].table.primary_key.columns)).all()
                for columns in (
                    list(Count.__table__.columns),
                    [column for column in Forecast.__table__.columns if column.name != "experts"],  # since step 0006
                )
            ]

    @staticmethod
    def kind(engine: Engine) -> dict[str, str]:
        question = "SELECT relname, relkind::text FROM pg_class WHERE relname IN ('counts', 'forecasts')"
        with engine.connect() as connection:
            return dict(connection.execute(text(question)).all())

    @staticmethod
    def rules(engine: Engine) -> list[Any]:
        question = """
            SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
            WHERE conrelid IN ('counts'::regclass, 'forecasts'::regclass) ORDER BY 1, 2
        """
        columns = """
            SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
            WHERE table_name IN ('counts', 'forecasts') AND column_name <> 'experts' -- since step 0006
            ORDER BY table_name, ordinal_position
        """
        with engine.connect() as connection:
            return [*connection.execute(text(question)), *connection.execute(text(columns))]


# Two processes with months to write to that neither has seen.
WRITE = """
import sys
import numpy as np
from app.counts.ingest import store_counts
from app.core.database import open_database, writing
from app.links.queries import link_or_404
from app.settings import Settings
slots = np.arange(0, 3 * 365 * 86_400, 86_400)
with writing(open_database(Settings().database_url)) as session:
    link = link_or_404(session, sys.argv[1])
    keys = np.full_like(slots, link.link_key)
    store_counts(session, [link], np.column_stack([keys, slots, slots % 100, 0 * slots]))
"""


class TestWriting:
    def test_two_processes_that_need_the_same_new_months_both_store_all(self, engine, database_url):
        put_links(engine)
        environment = os.environ | {"FLOWCAST_DATABASE_URL": database_url}
        wanted = list(range(0, 3 * 365 * DAY, DAY))

        def write_here() -> None:
            with writing(engine) as session:
                store(session, "L2", wanted)

        with ThreadPoolExecutor() as threads:
            with engine.connect() as connection:
                connection.execute(text("LOCK TABLE links IN ROW EXCLUSIVE MODE"))  # as if links were written meanwhile
                other = subprocess.Popen([sys.executable, "-c", WRITE, "L1"], env=environment, stderr=subprocess.PIPE)
                here = threads.submit(write_here)
                wait_until(lambda: connection.execute(text(WAITING_SESSIONS)).scalar_one() == 2)
                connection.rollback()  # and both go
            here.result(WAIT_SECONDS)
        output = other.communicate(timeout=WAIT_SECONDS)[1]
        assert other.returncode == 0, output
        assert stored_slots(engine, 1) == stored_slots(engine, 2) == wanted
        assert months_of_counts(engine) == {month_name(month) for month in range(36)}

    def test_a_write_that_fails_leaves_the_month_and_is_made_again(self, engine):
        put_links(engine)
        with Session(engine) as session:
            store(session, "L1", [900])
            session.rollback()
        assert months_of_counts(engine) == {"1970_01"}
        with writing(engine) as session:
            store(session, "L1", [900])
        assert stored_slots(engine, 1) == [900]

    def test_a_month_made_beside_new_links_goes_with_them_and_is_made_again(self, engine):
        now = int(time.time()) // 900 * 900

        def links_and_counts(session: Session) -> None:
            row = {"zone": "UTC", "slot_minutes": 15, "created_at": AT, "updated_at": AT}
            session.execute(insert(Link).values(link_key=1, link_id="L1", name="", **row))
            store(session, "L1", [now])

        with Session(engine) as session:
            links_and_counts(session)
            session.rollback()
        assert months_of_counts(engine) == set()
        with writing(engine) as session:
            links_and_counts(session)
        assert stored_slots(engine, 1) == [now]

    def test_a_writer_keeps_its_month_and_reads_the_catalog_once(self, engine):
        put_links(engine)
        now = int(time.time()) // 900 * 900
        with writing(engine) as session:
            store(session, "L1", [now])
        with questions_of_catalog(engine) as asked, writing(engine) as session:
            store(session, "L1", [now - 900, now])
        assert asked == [] or month_of(now - 900) != month_of(now)  # but in the first slot of a month
        following = month_begin(month_of(now) + 1)
        with writing(engine) as session:
            store(session, "L1", [now])
            with writing(engine) as other:
                store(other, "L2", [following])
            store(session, "L1", [following])  # in a transaction that began before the month was there
        assert stored_slots(engine, 1)[-1] == stored_slots(engine, 2)[-1] == following
        with writing(engine) as session:
            ensure_months(session, "counts", [900])
            with engine.connect() as other:
                other.execute(text("SET lock_timeout = '50ms'"))
                with pytest.raises(Exception, match="lock timeout"):
                    other.execute(text("DROP TABLE counts_1970_01"))


class TestFewMonths:
    """Months are made for counts that are stored, and not too many at once."""

    def file(self, link_id: str, months: range, rows: str = "") -> str:
        moments = (datetime.fromtimestamp(month_begin(month), UTC) for month in months)
        lines = [f"{link_id},{moment:%Y-%m-%dT%H:%M:%SZ},1" for moment in moments]
        return "\n".join(["link_id,slot_start,count", *lines, rows])

    def test_refused_counts_make_none(self, client, put_link, engine):
        put_link("Hourly", slot_minutes=60)
        put_link("A")
        body = client.post("/v1/import", content=self.file("Nowhere", range(1560))).json()
        assert (body["stored"], body["refused"]) == (0, 1560)
        client.post("/v1/import", content=self.file("Hourly", range(1560)))
        counts = self.file("Nowhere", range(100), "A,2026-01-01T00:00:00Z,1\n")
        answer = client.post("/v1/counts?partial=true", content=counts, headers={"Content-Type": "text/csv"})
        assert (answer.json()["stored"], len(answer.json()["refused"])) == (1, 100)
        assert months_of_counts(engine) == {"2026_01"}

    def test_a_file_that_creates_links_makes_the_next_month_too(self, client, engine):
        client.post("/v1/import?create_links=true&zone=UTC", content=self.file("New", range(600, 601)))
        assert months_of_counts(engine) == {month_name(600), month_name(601)}

    def test_future_counts_of_a_file_make_none(self, engine):
        put_links(engine)
        this_month = month_of(int(time.time()))
        file = io.BytesIO(self.file("L1", range(this_month, 1560)).encode())
        report = import_counts(engine, file, clock=WallClock())
        assert (report.stored, report.refused) == (1, 1560 - this_month - 1)
        assert months_of_counts(engine) == {month_name(this_month)}

    @pytest.mark.parametrize(("path", "most"), [("/v1/counts", 60), ("/v1/import", 240)])
    def test_a_batch_may_make_so_many(self, client, put_link, engine, path, most):
        put_link("A")
        headers = {"Content-Type": "text/csv"}
        refused = client.post(path, content=self.file("A", range(most + 1)), headers=headers)
        assert refused.status_code == 422
        [error] = refused.json()["errors"]
        last = month_name(most).replace("_", "-")
        assert error["field"] == "slot_start"
        assert error["value"] == f"{most + 1} months that have no counts yet, 1970-01 to {last}"
        assert error["reason"] == f"must begin at most {most} new months at once; send fewer years at a time"
        assert months_of_counts(engine) == set()
        for months in (range(most), range(most + 1)):  # those that are there do not count
            assert client.post(path, content=self.file("A", months), headers=headers).status_code == 200
        assert months_of_counts(engine) == {month_name(month) for month in range(most + 1)}


def test_links_without_recent_counts_are_read_as_before(engine):
    put_links(engine, 3)
    last = int(time.time()) // 900 * 900 - 900
    long_ago = last - 400 * DAY
    with writing(engine) as session:
        for key, slots in {1: (last, last - 800 * DAY), 2: (long_ago, long_ago - 900)}.items():
            put_rows(session, Count, [{"link_key": key, "slot_start": s, "count": 1, "quality": 0} for s in slots])
            put_rows(session, Forecast, [forecast(key, s + 3600, 4) for s in slots])
    with reading(engine) as session:
        assert newest_slots(session) == newest_slots(session, [3, 2, 1]) == {1: last, 2: long_ago}
        assert newest_slots(session, [2, 3]) == {2: long_ago}
        assert latest_forecasts(session) == {1: (last, 0), 2: (long_ago, 0)}
        assert [newest_forecast(session, key) for key in (1, 2, 3)] == [last + 3600, long_ago + 3600, None]
        assert stored_span(session, 1) == (last - 800 * DAY, last)
        assert stored_span(session, 2) == (long_ago - 900, long_ago)
        assert stored_span(session, 3) == (None, None)


def test_months_are_those_of_the_calendar(database_url):
    for day in ((1970, 1, 1), (2024, 2, 29), (2099, 12, 31)):
        moment = datetime(*day, 23, 45, tzinfo=UTC)
        second = int(moment.timestamp())
        month = month_of(second)
        assert month_begin(month) <= second < month_begin(month + 1)
        assert month_name(month) == f"{moment:%Y_%m}"
        assert month_named(f"counts_{month_name(month)}") == month
        assert months_of([second, second]) == {month}
