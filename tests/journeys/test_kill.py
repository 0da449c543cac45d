"""What is acknowledged stays: real processes, killed."""

import signal
import threading
import time

from tests.journeys.service import running_service


def slot(i: int) -> str:
    return f"2025-09-{1 + i // 96:02}T{i % 96 // 4:02}:{i % 4 * 15:02}:00Z"


def stored(service, link_id: str) -> dict[str, int]:
    path = f"/v1/links/{link_id}/counts?from={slot(0)}&to={slot(960)}&limit=10000"
    return {
        one["slot_start"]: one["count"] for one in service.ask("GET", path)[1]["counts"] if one["count"] is not None
    }


def test_counts_are_there_after_a_kill_right_after_the_answer(database_url, tmp_path):
    with running_service(database_url, tmp_path) as service:
        assert service.ask("PUT", "/v1/links/A", {})[0] == 201
        counts = [{"link_id": "A", "slot_start": slot(i), "count": i} for i in range(500)]
        status, report = service.ask("POST", "/v1/counts", {"counts": counts})
        service.kill()
    assert (status, report["stored"]) == (200, 500)
    with running_service(database_url, tmp_path) as service:
        assert stored(service, "A") == {slot(i): i for i in range(500)}


def test_a_kill_in_the_middle_of_batches_loses_nothing_acknowledged_and_stores_none_by_half(database_url, tmp_path):
    acknowledged = []
    with running_service(database_url, tmp_path) as service:
        service.ask("PUT", "/v1/links/A", {})

        def send() -> None:
            for i in range(0, 960, 12):
                counts = [{"link_id": "A", "slot_start": slot(j), "count": j} for j in range(i, i + 12)]
                try:
                    status, _ = service.ask("POST", "/v1/counts", {"counts": counts})
                except OSError:
                    return
                if status == 200:
                    acknowledged.append(i)

        sender = threading.Thread(target=send)
        sender.start()
        while len(acknowledged) < 5:
            time.sleep(0.005)
        service.kill()
        sender.join()
    with running_service(database_url, tmp_path) as service:
        there = stored(service, "A")
    for i in acknowledged:
        assert all(there.get(slot(j)) == j for j in range(i, i + 12))
    for i in range(0, 960, 12):
        assert sum(slot(j) in there for j in range(i, i + 12)) in (0, 12)


def test_sigterm_finishes_what_is_under_way(database_url, tmp_path):
    with running_service(database_url, tmp_path) as service:
        for link_id in "ABCDEFGH":
            service.ask("PUT", f"/v1/links/{link_id}", {})
        counts = [{"link_id": link_id, "slot_start": slot(i), "count": i} for link_id in "ABCDEFGH" for i in range(960)]
        answers = []
        sender = threading.Thread(target=lambda: answers.append(service.ask("POST", "/v1/counts", {"counts": counts})))
        sender.start()
        time.sleep(0.05)
        service.process.terminate()
        sender.join()
        assert service.process.wait(timeout=30) in (0, -signal.SIGTERM)  # uvicorn ends by the signal it was sent
    assert [status for status, _ in answers] == [200]
