"""The database goes away, refuses, hangs and comes back under a running service."""

import json

import psycopg
import pytest

from tests.support.background import Background
from tests.support.postgresql import PostgreSQL, own_postgresql
from tests.support.services import ADMIN_KEY, Service, running_service, slot_start
from tests.support.waiting import wait_until

A_AND_B = "/v1/forecasts?links=A,B"
OUTAGE_SECONDS = 30
FULL = """
    CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER no_space BEFORE INSERT OR UPDATE ON counts EXECUTE FUNCTION no_space();
"""


class CountSender(Background):
    """Sends one count after another, each until it is acknowledged, and keeps the answers."""

    def __init__(self, service: Service, link_id: str) -> None:
        super().__init__()
        self.service, self.link_id = service, link_id
        self.acknowledged: dict[str, int] = {}
        self.answers: list[tuple[int, str | None]] = []

    def run(self) -> None:
        i = 0
        while not self.over.is_set():
            row = {"link_id": self.link_id, "slot_start": slot_start(i), "count": i}
            status, _, headers = self.service.request_as(ADMIN_KEY, "POST", "/v1/counts", {"counts": [row]})
            self.answers.append((status, headers.get("Retry-After")))
            if status == 200:
                self.acknowledged[slot_start(i)] = i
                i += 1
            self.over.wait(0.4)


def has_in_memory(service: Service, links: int) -> bool:
    """Return whether the service has the forecasts of so many links in memory, should the database go away."""
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if "forecast cache refreshed" in line]
    return bool(lines) and lines[-1]["links"] == links


@pytest.fixture
def database():
    with own_postgresql(fsync=False) as server:
        yield server


def test_forecasts_are_stale_while_counts_are_refused_and_none_is_lost(database: PostgreSQL, tmp_path):
    url = database.create("away")
    with running_service(url, tmp_path, FLOWCAST_LOG_LEVEL="debug") as service:
        for link_id in "ABC":
            service.request("PUT", f"/v1/links/{link_id}", {"zone": "UTC"})
        counts = [
            {"link_id": link_id, "slot_start": slot_start(i), "count": i} for link_id in "AB" for i in range(860, 900)
        ]
        assert service.request("POST", "/v1/counts", {"counts": counts})[0] == 200
        key = service.request("POST", "/v1/admin/keys", {"name": "control centre", "scopes": ["read"]})[1]["key"]
        idle = service.request("POST", "/v1/admin/keys", {"name": "idle", "scopes": ["read"]})[1]["key"]
        status, before, headers = service.request_as(key, "GET", "/v1/links/A/forecast?horizon=4")
        assert (status, before["stale"], headers["X-Flowcast-Stale"]) == (200, False, None)
        status, body, headers = service.request_as(key, "GET", A_AND_B)
        assert (status, body["stale"], headers["X-Flowcast-Stale"]) == (200, False, None)
        tag = headers["ETag"]

        with CountSender(service, "C") as feed:
            wait_until(lambda: has_in_memory(service, 3))
            database.kill()
            wait_until(
                lambda: service.request_as(key, "GET", "/v1/links/A/forecast")[1]["stale"]
            )  # once it has noticed
            for _ in range(OUTAGE_SECONDS):
                status, body, headers = service.request_as(key, "GET", "/v1/links/A/forecast?horizon=4")
                assert (status, body["stale"], headers["X-Flowcast-Stale"]) == (200, True, "true")
                assert body["forecasts"] == before["forecasts"]
                feed.over.wait(1.0)
            status, body, headers = service.request_as(key, "GET", "/v1/forecasts")
            assert (status, body["stale"], [one["link_id"] for one in body["links"]]) == (200, True, ["A", "B", "C"])
            assert headers["X-Flowcast-Stale"] == "true"
            stale_tag = service.request_as(key, "GET", A_AND_B)[2]["ETag"]
            for also, expected in (
                ({"If-None-Match": tag}, 200),  # of the same forecasts when they were not stale
                ({"If-None-Match": stale_tag}, 304),
                ({"Accept": "text/csv"}, 200),
            ):
                status, _, headers = service.request_as(key, "GET", A_AND_B, **also)
                assert (status, headers["X-Flowcast-Stale"]) == (expected, "true"), also
            assert headers.get_content_type() == "text/csv"
            for path in ("/v1/links", "/v1/links/A/counts", "/v1/links/nobody/forecast?explain=true"):
                status, problem, headers = service.request_as(key, "GET", path)
                assert (status, problem["type"]) == (503, "/problems/unavailable")
                assert int(headers["Retry-After"]) > 0
            # A key that was not used recently may have been revoked meanwhile.
            assert service.request_as(idle, "GET", "/v1/links/A/forecast")[0] == 503
            assert service.request_as("fc_unknown_key", "GET", "/v1/links/A/forecast")[0] in (401, 503)
            assert service.request("GET", "/livez")[0] == 200
            assert service.request("GET", "/readyz")[0] == 503
            status, ready = service.request("GET", "/readyz/forecasts")
            assert (status, ready["status"], ready["database"]["ok"]) == (200, "stale", False)
            refused = [wait for status, wait in feed.answers if status == 503]
            assert refused
            assert all(refused)
            assert {status for status, _ in feed.answers} == {200, 503}

            database.start()
            known = len(feed.acknowledged)
            wait_until(lambda: len(feed.acknowledged) > known)
            wait_until(lambda: service.request("GET", "/readyz")[0] == 200)
            assert service.request_as(idle, "GET", "/v1/links/A/forecast")[0] == 200
            status, body, headers = service.request_as(key, "GET", "/v1/links/A/forecast?horizon=4")
            assert (status, body["stale"], headers["X-Flowcast-Stale"]) == (200, False, None)

            # It accepts statements and answers none: requests end in bounded time, and forecasts at once.
            database.suspend()
            n = len(feed.answers)
            wait_until(lambda: 503 in [status for status, _ in feed.answers[n:]])
            wait_until(lambda: service.request_as(key, "GET", "/v1/links/A/forecast?horizon=4")[1]["stale"])
            assert service.request("GET", "/v1/links")[0] == 503
            database.resume()
            known = len(feed.acknowledged)
            wait_until(lambda: len(feed.acknowledged) > known)

            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(FULL)
                n = len(feed.answers)
                wait_until(lambda: 503 in [status for status, _ in feed.answers[n:]])
                connection.execute("DROP TRIGGER no_space ON counts")
            known = len(feed.acknowledged)
            wait_until(lambda: len(feed.acknowledged) > known)

        there = service.counts("C")
        assert {place: there.get(place) for place in feed.acknowledged} == feed.acknowledged
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM count_corrections").fetchone() == (0,)
