"""The clock is set back by an hour under a running service and its worker."""

import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from app.core.database import open_database
from app.demo.city import sample_city
from tests.support.databases import on_sqlite
from tests.support.services import running_service, start_worker
from tests.support.stored import queue_run, select_rows, store_city
from tests.support.waiting import TRAINING_SECONDS, wait_until

HOUR = 3600
SLOW = {"lags": 45, "n_neighbors": 20, "max_iter": 60, "held_out_days": 4, "mu": [1e-2, 1e-3]}


@on_sqlite
def test_a_clock_set_back_loses_and_doubles_nothing(database_url, tmp_path):
    offset, log = tmp_path / "offset", tmp_path / "worker.log"
    offset.write_text("0")
    program = (sys.executable, "-m", "tests.support.stepped_clock", str(offset))
    engine = open_database(database_url)
    city = sample_city(links=1, days=10, seed=4)
    link = next(iter(city.counts))
    quarter = int(datetime.now(UTC).timestamp()) // 900 * 900
    store_city(engine, city, up_to=quarter - 3600)
    newest = [datetime.fromtimestamp(quarter - 900 * i, UTC).isoformat() for i in (3, 2, 1)]  # all are over
    workers = []

    def runs_are(*states: str) -> bool:
        return {state for (state,) in select_rows(engine, "SELECT state FROM retrain_runs")} == set(states)

    def wait_for(condition: Callable[[], bool]) -> None:
        wait_until(condition, seconds=TRAINING_SECONDS, explain=log.read_text)

    try:
        with running_service(database_url, tmp_path, "--no-worker", program=program, FLOWCAST_CLOCK="wall") as service:

            def post(slots: list[str]) -> tuple[int, dict]:
                counts = [{"link_id": link, "slot_start": start, "count": 7} for start in slots]
                return service.request("POST", "/v1/counts", {"counts": counts})

            def now() -> datetime:
                body = service.request("POST", "/v1/admin/keys", {"name": "what time is it", "scopes": ["read"]})[1]
                return datetime.fromisoformat(body["created_at"])

            key = service.request("POST", "/v1/admin/keys", {"name": "reader", "scopes": ["read"]})[1]["key"]
            path = f"/v1/links/{link}/forecast"
            assert service.request_as(key, "GET", path)[0] == 200
            assert post(newest[:2])[0] == 200
            workers.append(start_worker(database_url, tmp_path, program))
            queue_run(engine)
            wait_for(lambda: runs_are("succeeded"))
            assert service.request_as(key, "GET", path)[1]["forecasts"][0]["model_version"] == 1
            queue_run(engine, SLOW, "KR_SML")
            wait_for(lambda: bool(select_rows(engine, "SELECT 1 FROM retrain_links WHERE state = 'training'")))
            workers[0].send_signal(signal.SIGKILL)
            workers[0].wait()

            offset.write_text(str(-HOUR))
            wait_for(lambda: now() < datetime.now(UTC) - timedelta(seconds=HOUR / 2))

            # What lies in the future now is refused, by name, and taken once the clock is right.
            status, problem = post(newest)
            assert (status, problem["errors"][0]["reason"]) == (422, "must not lie in the future")
            status, body, _ = service.request_as(key, "GET", path)
            assert (status, body["stale"], body["forecasts"][0]["data_age_seconds"]) == (200, False, 0)

            # The heartbeat of the dead worker lies an hour ahead; its run is taken up nevertheless.
            workers.append(start_worker(database_url, tmp_path, program))
            wait_for(lambda: runs_are("succeeded"))
            assert select_rows(engine, "SELECT version FROM retrain_links ORDER BY run_id") == [(1,), (2,)]
            history = service.request("GET", f"/v1/admin/links/{link}/activations")[1]["activations"]
            assert [one["version"] for one in history] == [2, 1]
            assert history[0]["activated_at"] > history[1]["activated_at"]
            assert service.request_as(key, "GET", path)[1]["forecasts"][0]["model_version"] == 2

            offset.write_text("0")
            wait_for(lambda: now() > datetime.now(UTC) - timedelta(seconds=HOUR / 2))
            status, report = post(newest)
            assert (status, report["stored"], report["unchanged"]) == (200, 1, 2)
            assert service.request_as(key, "GET", path)[0] == 200
        assert select_rows(engine, "SELECT count(*) FROM count_corrections") == [(0,)]
        halves = """SELECT count(*) FROM forecasts GROUP BY model_version, slot_start - horizon * 900
                    HAVING count(*) <> 4 OR count(DISTINCT issued_at) <> 1"""
        assert select_rows(engine, halves) == []
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        engine.dispose()
