"""No room for a count."""

import resource
import time

import pytest

from tests.journeys.service import running_service
from tests.journeys.test_kill import slot, stored


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_counts_that_find_no_room_are_refused_and_those_acknowledged_stay(database_url, tmp_path):
    with running_service(database_url, tmp_path, "--no-worker") as service:
        acknowledged: dict[str, int] = {}

        def post(first: int) -> int:
            counts = [{"link_id": "A", "slot_start": slot(i), "count": i} for i in range(first, first + 96)]
            status, said, headers = service.ask_as(
                "an-admin-key-for-tests-only", "POST", "/v1/counts", {"counts": counts}
            )
            if status == 200:
                acknowledged.update({slot(i): i for i in range(first, first + 96)})
            else:
                assert (status, said["type"]) == (503, "/problems/unavailable")
                assert headers["Retry-After"]
            return status

        service.ask("PUT", "/v1/links/A", {})
        assert post(0) == 200
        assert service.ask("GET", "/v1/links/A/forecast")[1]["stale"] is False
        # As large as a file may be from now on: what a process without privileges can have for a full disk.
        _, most = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        room = max(path.stat().st_size for path in tmp_path.glob("flowcast.db*")) + 20_000
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (room, most))
        answers = [post(96 * day) for day in range(1, 10)]
        assert 503 in answers
        deadline = time.monotonic() + 60
        while True:  # up to date, or said to be stale where the newer one could not be stored
            status, said = service.ask("GET", "/v1/links/A/forecast")
            assert status == 200
            if said["stale"] or said["forecasts"][0]["as_of_slot"] == max(acknowledged):
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert stored(service, "A") == acknowledged
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert [post(96 * day) for day in range(10)] == [200] * 10
        assert stored(service, "A") == acknowledged
        assert len(acknowledged) == 960
        assert service.ask("GET", "/v1/links/A/forecast")[1]["stale"] is False
