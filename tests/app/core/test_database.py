"""A database that does not do what is asked of it."""

from collections.abc import Callable
from typing import Any

import psycopg
from sqlalchemy.engine import make_url
from starlette.testclient import TestClient

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
