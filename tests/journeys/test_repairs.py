"""Two services on one database: a wrong count is removed and a wrong zone put right, and both follow."""

from collections.abc import Callable
from typing import Any

from tests.support.databases import on_postgresql
from tests.support.services import Service, running_service, slot_start
from tests.support.waiting import wait_until

DAYS = 8
NEWEST = DAYS * 96 - 1
COUNTS = [40 + i % 96 for i in range(NEWEST + 1)]  # every day alike
FAR = "2096-01-01T00:00:00Z"


def post(service: Service, link_id: str, counts: dict[str, int]) -> tuple[int, Any]:
    rows = [{"link_id": link_id, "slot_start": slot, "count": count} for slot, count in counts.items()]
    return service.request("POST", "/v1/counts", {"counts": rows})


# On SQLite a process only sees that something was written. Here a notification has to name what it was.
@on_postgresql
def test_a_wrong_count_and_a_wrong_zone_are_put_right_in_every_process(database_url, tmp_path):
    def forecast(service: Service, link_id: str) -> dict[str, Any]:
        return dict(service.request("GET", f"/v1/links/{link_id}/forecast")[1]["forecasts"][0])

    with running_service(database_url, tmp_path) as one, running_service(database_url, tmp_path) as two:

        def both(condition: Callable[[Service], bool]) -> None:
            for service in (one, two):
                wait_until(lambda service=service: condition(service), explain=service.log.read_text)

        assert one.request("PUT", "/v1/links/A", {"name": "A"})[0] == 422  # without a zone
        for link_id in ("A", "B"):
            assert one.request("PUT", f"/v1/links/{link_id}", {"zone": "UTC"})[0] == 201
            assert post(one, link_id, {slot_start(i): count for i, count in enumerate(COUNTS)})[0] == 200
        right = forecast(two, "A")["expected_count"]

        # A count of 2096 is refused; one that came with a file makes the other link late in both processes.
        status, problem = post(one, "B", {FAR: 7})
        assert (status, problem["errors"][0]["field"]) == (422, "counts.0.slot_start")
        assert one.request("POST", "/v1/import", {"link_id": "B", "slot_start": FAR, "count": 7})[1]["stored"] == 1
        both(lambda service: forecast(service, "A")["data_age_seconds"] > 0)
        path = "/v1/links/B/counts?from=2090-01-01T00:00:00Z&to=2099-01-01T00:00:00Z&reason=wrong+year"
        assert two.request("DELETE", path)[1]["deleted"] == 1
        both(lambda service: forecast(service, "A")["data_age_seconds"] == 0)
        both(lambda service: forecast(service, "B")["as_of_slot"] == slot_start(NEWEST))

        # A new name leaves the zone as it is; another zone needs force, and every process learns the profile anew.
        assert one.request("PATCH", "/v1/links/A", {"name": "High Street"})[1]["zone"] == "UTC"
        assert one.request("PUT", "/v1/links/A", {"name": "High Street"})[1]["zone"] == "UTC"
        assert one.request("PATCH", "/v1/links/A", {"zone": "Australia/Melbourne"})[0] == 409
        before = forecast(two, "A")["issued_at"]
        assert one.request("PATCH", "/v1/links/A?force=true", {"zone": "Australia/Melbourne"})[0] == 200
        both(lambda service: forecast(service, "A")["issued_at"] > before)
        both(lambda service: abs(forecast(service, "A")["expected_count"] - right) < 1)
