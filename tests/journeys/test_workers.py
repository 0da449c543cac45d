"""Several workers, a worker that falls asleep, and one whose disk is full."""

import resource
import signal

import pytest

from app.database import open_database
from app.demo.city import sample_city
from app.settings import Settings
from tests.journeys.workers import PATIENCE, QUICK, put_city, request, rows, start_worker, wait_for

SLOW = {"lags": 45, "n_neighbors": 20, "max_iter": 15, "held_out_days": 4, "mu": [1e-2, 1e-3]}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_one_run_and_two_workers_each_link_once_also_when_one_falls_asleep_or_its_disk_is_full(database_url, tmp_path):
    engine = open_database(Settings(database_url=database_url).database_url)
    city, log = sample_city(links=3, days=10, seed=4), tmp_path / "worker.log"
    put_city(engine, city)

    def states(run: int) -> set[tuple[str, str]]:
        question = """SELECT r.state, l.state FROM retrain_runs r JOIN retrain_links l ON l.run_id = r.id
                      WHERE r.id = :run"""
        return {(ours, its) for ours, its in rows(engine, question, run=run)}

    def versions() -> list[int]:
        return sorted(version for (version,) in rows(engine, "SELECT version FROM trained_models"))

    def artifacts() -> list[str]:
        found = (tmp_path / "models").glob("[!.]*/*")
        return sorted(path.relative_to(tmp_path / "models").as_posix() for path in found)

    first = request(engine, QUICK)
    workers = [start_worker(database_url, tmp_path) for _ in range(2)]
    try:
        wait_for(lambda: states(first) == {("succeeded", "done")}, log)
        assert log.read_text().count('"run begins"') == 1
        assert versions() == [1, 1, 1]
        assert artifacts() == [f"{link_id}/1" for link_id in sorted(city.counts)]

        # One that is not heard of loses its run, and finds out when it wakes.
        second = request(engine, SLOW, "KR_SML")
        training = "SELECT worker FROM retrain_runs r JOIN retrain_links l ON run_id = id WHERE l.state = 'training'"
        wait_for(lambda: bool(rows(engine, training)), log)
        name = rows(engine, training)[0][0]
        sleeper = next(worker for worker in workers if f":{worker.pid}:" in name)
        sleeper.send_signal(signal.SIGSTOP)
        wait_for(lambda: states(second) == {("succeeded", "done")}, log)
        assert rows(engine, "SELECT worker FROM retrain_runs WHERE id = :run", run=second) != [(name,)]
        sleeper.send_signal(signal.SIGCONT)
        wait_for(lambda: "run lost to another worker" in log.read_text(), log)
        assert versions() == [1, 1, 1, 2, 2, 2]

        # No room for an artifact: the link fails by name, and nothing of it is on the shelf or beside it.
        workers.remove(sleeper)
        sleeper.terminate()
        sleeper.wait(timeout=PATIENCE)
        _, most = resource.prlimit(workers[0].pid, resource.RLIMIT_FSIZE)
        resource.prlimit(workers[0].pid, resource.RLIMIT_FSIZE, (1000, most))
        third = request(engine, {**QUICK, "n_neighbors": 5})
        wait_for(lambda: states(third) == {("failed", "failed")}, log)
        reasons = rows(engine, "SELECT reason FROM retrain_links WHERE state = 'failed'")
        assert all("File too large" in reason for (reason,) in reasons)
        assert versions() == [1, 1, 1, 2, 2, 2]
        resource.prlimit(workers[0].pid, resource.RLIMIT_FSIZE, (most, most))
        fourth = request(engine, {**QUICK, "n_neighbors": 5})
        wait_for(lambda: states(fourth) == {("succeeded", "done")}, log)
        assert versions() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        assert artifacts() == sorted(f"{link_id}/{version}" for link_id in city.counts for version in (1, 2, 3))
        wait_for(lambda: not list((tmp_path / "models").glob(".training-*")), log)
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
            worker.wait(timeout=PATIENCE)
        engine.dispose()
