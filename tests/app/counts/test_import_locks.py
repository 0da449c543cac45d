"""An import beside those who post counts: only links of its file have to wait, and none of them for good."""

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, Any, cast

import pytest
from sqlalchemy import Engine, text
from starlette.testclient import TestClient

from app.core.database import open_database, reading, writing
from app.core.errors import Conflict
from app.counts.importers import spool
from app.counts.schemas import ImportedFile
from app.counts.tables import Count
from app.links.schemas import LinkIn
from app.links.store_links import store_links
from app.main import create_app
from app.maintenance.prune import all_keys, remove_slots
from tests.support.count_files import Pipe, import_counts
from tests.support.databases import on_postgresql
from tests.support.postgresql import WAITING_SESSIONS
from tests.support.stored import select_rows
from tests.support.waiting import WAIT_SECONDS, wait_until

MIDNIGHT = datetime(2025, 9, 1, tzinfo=UTC)
STORED = "SELECT link_id, slot_start, count FROM counts JOIN links USING (link_key) ORDER BY link_id, slot_start"


def slot_start(slot: int) -> str:
    return (MIDNIGHT + timedelta(minutes=15 * slot)).isoformat()


def file_of(*rows: tuple[str, int, int]) -> str:
    lines = [f"{link_id},{slot_start(slot)},{count}" for link_id, slot, count in rows]
    return "\n".join(["link_id,slot_start,count", *lines, ""])


def run(engine: Engine, file: str, **options: Any) -> ImportedFile:
    return import_counts(engine, io.BytesIO(file.encode()), **options)


def stored(engine: Engine) -> dict[tuple[str, int], int]:
    start = int(MIDNIGHT.timestamp())
    return {(link_id, (slot - start) // 900): count for link_id, slot, count in select_rows(engine, STORED)}


def add_links(engine: Engine, *link_ids: str) -> None:
    with writing(engine) as session:
        store_links(session, [LinkIn(link_id=link_id, zone="UTC") for link_id in link_ids])


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_database(database_url.replace("postgresql:", "postgresql+psycopg:"))
    yield opened
    opened.dispose()


@contextmanager
def held(engine: Engine, statement: str) -> Iterator[None]:
    """Hold the locks of a statement during a block."""
    with engine.connect() as connection:
        connection.execute(text(statement))
        try:
            yield
        finally:
            connection.rollback()


def waiting(engine: Engine) -> int:
    [[n]] = select_rows(engine, WAITING_SESSIONS)
    return int(n)


@pytest.fixture
def start() -> Iterator[Callable[..., Future[Any]]]:
    """Call a function in a thread."""
    with ThreadPoolExecutor(16) as threads:
        yield threads.submit


def post(client: Any, *link_ids: str, slot: int = 2) -> int:
    counts = [{"link_id": link_id, "slot_start": slot_start(slot), "count": 1} for link_id in link_ids]
    return int(client.post("/v1/counts", json={"counts": counts}).status_code)


@on_postgresql
class TestPosts:
    def test_to_other_links_are_answered_while_an_import_holds_its_own(self, client, put_link, engine, start):
        for link_id in ("A", "B", "Other"):
            put_link(link_id)
        post(client, "Other", slot=0)  # the month
        with held(engine, "SELECT FROM links WHERE link_id = 'B' FOR NO KEY UPDATE"):
            imported = start(client.post, "/v1/import", content=file_of(("A", 0, 7), ("B", 0, 8)))
            wait_until(lambda: waiting(engine) == 1)  # with A locked, for B
            own = [start(post, client, *links) for links in (["A"], ["A"], ["A", "Other"], ["Other", "A"])]
            for slot in (1, 2, 3, 4):
                assert start(post, client, "Other", slot=slot).result(WAIT_SECONDS) == 200
            assert not any(one.done() for one in own)
            assert {slot for link_id, slot in stored(engine) if link_id == "Other"} == {0, 1, 2, 3, 4}
        assert imported.result(WAIT_SECONDS).json()["stored"] == 2
        assert [one.result(WAIT_SECONDS) for one in own] == [200] * 4
        assert {("A", 0): 7, ("A", 2): 1, ("B", 0): 8}.items() <= stored(engine).items()

    def test_past_the_bound_of_those_that_may_wait_are_refused(self, settings, engine, start):
        bounded = create_app(settings.model_copy(update={"max_waiting": 1}))
        add_links(engine, "A", "Other")
        with TestClient(bounded, headers={"X-API-Key": settings.admin_key.get_secret_value()}) as client:
            assert post(client, "A") == 200
            with held(engine, "SELECT FROM links WHERE link_id = 'A' FOR NO KEY UPDATE"):
                own = [start(post, client, "A") for _ in range(4)]
                wait_until(lambda: sum(one.done() for one in own) == 3)
                assert start(post, client, "Other").result(WAIT_SECONDS) == 200
            assert sorted(one.result(WAIT_SECONDS) for one in own) == [200, 503, 503, 503]

    def test_that_need_a_new_month_do_not_hold_up_the_others(self, client, put_link, engine, start):
        put_link("A")
        put_link("Other")
        post(client, "Other", slot=0)
        with held(engine, "LOCK TABLE links IN SHARE ROW EXCLUSIVE MODE"):  # as an import that creates links does
            late = start(post, client, "A", slot=-96 * 40)
            for slot in (1, 2, 3):
                assert start(post, client, "Other", slot=slot).result(WAIT_SECONDS) == 200
            assert not late.done()
        assert late.result(WAIT_SECONDS) == 200


class TestImport:
    def test_locks_nothing_before_all_is_read_and_checked(self, engine, start):
        add_links(engine, "A", "B")
        at_the_end, go_on = threading.Event(), threading.Event()

        class Slow(Pipe):
            def readinto(self, buffer: Any) -> int:
                n = super().readinto(buffer)
                if not n:
                    at_the_end.set()
                    assert go_on.wait(WAIT_SECONDS)
                return n

        def import_slowly() -> ImportedFile:
            return import_counts(engine, cast(IO[bytes], Slow(file_of(("A", 0, 7), ("B", 0, 8)).encode())))

        imported = start(import_slowly)
        assert at_the_end.wait(WAIT_SECONDS)
        assert run(engine, file_of(("A", 0, 5))).stored == 1
        go_on.set()
        report = imported.result(WAIT_SECONDS)
        assert (report.stored, report.replaced) == (1, 1)
        assert stored(engine) == {("A", 0): 7, ("B", 0): 8}

    @on_postgresql
    def test_a_dry_run_waits_for_no_lock_and_creates_no_month(self, engine, start):
        add_links(engine, "A")
        with held(engine, "SELECT FROM links FOR NO KEY UPDATE"):
            dry = start(
                run, engine, file_of(("A", 0, 7), ("New", 0, 1)), create_links=True, dry_run=True, default_zone="UTC"
            )
            report = dry.result(WAIT_SECONDS)
        assert (report.stored, report.links_created) == (2, 1)
        assert select_rows(engine, "SELECT inhrelid FROM pg_inherits WHERE inhparent = 'counts'::regclass") == []

    @on_postgresql
    def test_two_with_the_same_links_in_another_order_both_store_all(self, engine, monkeypatch, start):
        monkeypatch.setattr(spool, "MOST_IN_A_GROUP", 1)  # a link at a time
        add_links(engine, "A", "B")
        others: list[Future[ImportedFile]] = []

        def after_a_link(_note: str) -> None:
            if not others:
                others.append(start(run, engine, file_of(("B", 1, 2), ("A", 1, 2))))
                wait_until(lambda: waiting(engine) == 1)

        assert run(engine, file_of(("A", 0, 1), ("B", 0, 1)), note=after_a_link).stored == 2
        assert others[0].result(WAIT_SECONDS).stored == 2
        assert stored(engine) == {("A", 0): 1, ("A", 1): 2, ("B", 0): 1, ("B", 1): 2}

    @on_postgresql
    def test_stores_nothing_if_a_link_is_deleted_meanwhile(self, engine, start):
        add_links(engine, "A", "B")
        with engine.connect() as connection:
            connection.execute(text("DELETE FROM links WHERE link_id = 'B'"))
            imported = start(run, engine, file_of(("A", 0, 7), ("B", 0, 8)))
            wait_until(lambda: waiting(engine) == 1)
            connection.commit()
        with pytest.raises(Conflict, match="a link of the file was deleted: 'B' while the file was read"):
            imported.result(WAIT_SECONDS)
        assert stored(engine) == {}


@on_postgresql
def test_prune_does_not_wait_for_an_import_while_it_holds_other_links(engine, start):
    add_links(engine, "A", "B")
    run(engine, file_of(("A", 0, 1), ("B", 0, 1)))
    with reading(engine) as session:
        keys = deque(all_keys(session))

    def remove() -> int:
        with writing(engine) as session:
            return remove_slots(session, Count, keys, int(MIDNIGHT.timestamp()) + 900, 5000)

    with held(engine, "SELECT FROM links WHERE link_id = 'B' FOR NO KEY UPDATE"):
        assert start(remove).result(WAIT_SECONDS) == 1
        assert stored(engine) == {("B", 0): 1}
    assert remove() == 1
    assert (stored(engine), list(keys)) == ({}, [])
