"""A database that refuses writes for a while, and conditions with many values."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import select
from sqlalchemy.engine import make_url
from starlette.testclient import TestClient

from app.core.database import in_values, open_database, reading, writing
from app.links.tables import Link
from app.settings import Settings
from tests.support.databases import on_postgresql
from tests.support.waiting import wait_until

COUNT = {"link_id": "A", "slot_start": "2025-09-01T00:00:00Z", "count": 5}
SPAN = {"from": "2025-09-01T00:00:00Z", "to": "2025-09-01T00:15:00Z"}


@on_postgresql
def test_a_read_only_database_refuses_writes_until_it_takes_them_again(
    client: TestClient, put_link: Callable[..., Any], database_url: str, postgresql: Callable[[str], str]
) -> None:
    name = make_url(database_url).database

    def switch(change: str) -> None:
        """Change what new connections may do, and end those that there are, as a failover does."""
        with psycopg.connect(postgresql("postgres"), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} {change}".encode())
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

    def post(count: int) -> Any:
        return client.post("/v1/counts", json={"counts": [COUNT | {"count": count}]})

    put_link("A")
    assert post(5).json()["stored"] == 1
    switch("SET default_transaction_read_only = on")
    wait_until(lambda: client.get("/readyz").json()["database"]["reason"] == "it takes no writes")
    assert client.get("/readyz").status_code == 503
    for _ in range(3):
        refused = post(6)
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")
        assert refused.headers["Retry-After"].isdigit()
    assert client.put("/v1/links/B", json={"zone": "UTC"}).status_code == 503
    assert client.get("/v1/links/A").status_code == 200
    assert client.get("/v1/links/A/forecast").status_code == 200

    with psycopg.connect(postgresql("postgres"), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
    wait_until(lambda: client.get("/readyz").status_code == 200)
    wait_until(lambda: post(6).status_code == 200)  # connections of before are dropped with the first refusal
    assert client.get("/v1/links/A/counts", params=SPAN).json()["counts"][0]["count"] == 6


NAMES = ["A", "it's", 'a"b', "{x,y}", "ä,ö", "[1]", "NULL"]


@pytest.fixture
def engine(database_url):
    engine = open_database(Settings(database_url=database_url).database_url)
    now = datetime.now(UTC)
    with writing(engine) as session:
        for name in NAMES:
            session.add(Link(link_id=name, name="", zone="UTC", slot_minutes=15, created_at=now, updated_at=now))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("wanted", [[], ["A"], NAMES, [*NAMES, "absent"], ["absent"]])
def test_texts_are_found_whatever_they_hold(engine, wanted):
    with reading(engine) as session:
        found = session.scalars(select(Link.link_id).where(in_values(Link.link_id, wanted))).all()
    assert sorted(found) == sorted(set(wanted) & set(NAMES))


def test_more_numbers_are_found_than_a_database_takes_parameters(engine):
    with reading(engine) as session:
        keys = session.scalars(select(Link.link_key)).all()
        many = [*keys[1:], *range(10**9, 10**9 + 100_000), 2**40]
        found = session.scalars(select(Link.link_key).where(in_values(Link.link_key, many))).all()
        assert sorted(found) == sorted(keys[1:])
        assert session.scalars(select(Link.link_key).where(in_values(Link.link_key, []))).all() == []


def test_the_next_question_asks_for_its_own_keys(engine):
    # What was compiled for one question is used again for the next: with the new keys, not the old.
    with reading(engine) as session:
        for name in NAMES:
            assert session.scalars(select(Link.link_id).where(in_values(Link.link_id, [name]))).all() == [name]
        both = select(Link.link_id).where(in_values(Link.link_id, NAMES[:2]), in_values(Link.link_id, NAMES[1:3]))
        assert session.scalars(both).all() == [NAMES[1]]
