"""No room for a count."""

import resource

from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY, running_service, slot_start
from tests.support.waiting import wait_until


@on_sqlite
def test_counts_that_find_no_room_are_refused_and_those_acknowledged_stay(database_url, tmp_path):
    with running_service(database_url, tmp_path, "--no-worker") as service:
        acknowledged: dict[str, int] = {}

        def post(first: int) -> int:
            counts = [{"link_id": "A", "slot_start": slot_start(i), "count": i} for i in range(first, first + 96)]
            status, body, headers = service.request_as(ADMIN_KEY, "POST", "/v1/counts", {"counts": counts})
            if status == 200:
                acknowledged.update({slot_start(i): i for i in range(first, first + 96)})
            else:
                assert (status, body["type"]) == (503, "/problems/unavailable")
                assert headers["Retry-After"]
            return status

        service.request("PUT", "/v1/links/A", {"zone": "UTC"})
        assert post(0) == 200
        assert service.request("GET", "/v1/links/A/forecast")[1]["stale"] is False
        # As large as a file may be from now on: what a process without privileges can have for a full disk.
        _, most = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        room = max(path.stat().st_size for path in tmp_path.glob("flowcast.db*")) + 20_000
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (room, most))
        answers = [post(96 * day) for day in range(1, 10)]
        assert 503 in answers

        def is_fresh_or_stale() -> bool:  # up to date, or marked as stale where the newer one could not be stored
            status, body = service.request("GET", "/v1/links/A/forecast")
            assert status == 200
            return bool(body["stale"] or body["forecasts"][0]["as_of_slot"] == max(acknowledged))

        wait_until(is_fresh_or_stale)
        assert service.counts("A") == acknowledged
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert [post(96 * day) for day in range(10)] == [200] * 10
        assert service.counts("A") == acknowledged
        assert len(acknowledged) == 960
        assert service.request("GET", "/v1/links/A/forecast")[1]["stale"] is False
