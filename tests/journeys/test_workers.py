"""Several workers, a worker that falls asleep, and one whose disk is full."""

import resource
import signal
from collections.abc import Callable

from app.core.database import open_database
from app.demo.city import sample_city
from app.settings import Settings
from tests.support.databases import on_postgresql
from tests.support.services import start_worker
from tests.support.stored import QUICK_RUN, queue_run, select_rows, store_city
from tests.support.waiting import TRAINING_SECONDS, WAIT_SECONDS, wait_until

SLOW = {"lags": 45, "n_neighbors": 20, "max_iter": 15, "held_out_days": 4, "mu": [1e-2, 1e-3]}


@on_postgresql
def test_two_workers_train_each_link_of_a_run_once(database_url, tmp_path):
    engine = open_database(Settings(database_url=database_url).database_url)
    city, log = sample_city(links=3, days=10, seed=4), tmp_path / "worker.log"
    store_city(engine, city)

    def states(run: int) -> set[tuple[str, str]]:
        question = """SELECT r.state, l.state FROM retrain_runs r JOIN retrain_links l ON l.run_id = r.id
                      WHERE r.id = :run"""
        return {(ours, its) for ours, its in select_rows(engine, question, run=run)}

    def wait_for(condition: Callable[[], bool]) -> None:
        wait_until(condition, seconds=TRAINING_SECONDS, explain=log.read_text)

    def versions() -> list[int]:
        return sorted(version for (version,) in select_rows(engine, "SELECT version FROM trained_models"))

    def artifacts() -> list[str]:
        found = (tmp_path / "models").glob("[!.]*/*")
        return sorted(path.relative_to(tmp_path / "models").as_posix() for path in found)

    first = queue_run(engine)
    workers = [start_worker(database_url, tmp_path) for _ in range(2)]
    try:
        wait_for(lambda: states(first) == {("succeeded", "done")})
        assert log.read_text().count('"run begins"') == 1
        assert versions() == [1, 1, 1]
        assert artifacts() == [f"{link_id}/1" for link_id in sorted(city.counts)]

        # A worker without a heartbeat loses its run, and notices that when it resumes.
        second = queue_run(engine, SLOW, "KR_SML")
        training = "SELECT worker FROM retrain_runs r JOIN retrain_links l ON run_id = id WHERE l.state = 'training'"
        wait_for(lambda: bool(select_rows(engine, training)))
        name = select_rows(engine, training)[0][0]
        sleeper = next(worker for worker in workers if f":{worker.pid}:" in name)
        sleeper.send_signal(signal.SIGSTOP)
        wait_for(lambda: states(second) == {("succeeded", "done")})
        assert select_rows(engine, "SELECT worker FROM retrain_runs WHERE id = :run", run=second) != [(name,)]
        sleeper.send_signal(signal.SIGCONT)
        wait_for(lambda: "run lost to another worker" in log.read_text())
        assert versions() == [1, 1, 1, 2, 2, 2]

        # No room for an artifact: the link fails by name, and nothing of it is in the registry or beside it.
        workers.remove(sleeper)
        sleeper.terminate()
        sleeper.wait(timeout=WAIT_SECONDS)
        _, most = resource.prlimit(workers[0].pid, resource.RLIMIT_FSIZE)
        resource.prlimit(workers[0].pid, resource.RLIMIT_FSIZE, (1000, most))
        third = queue_run(engine, {**QUICK_RUN, "n_neighbors": 5})
        wait_for(lambda: states(third) == {("failed", "failed")})
        reasons = select_rows(engine, "SELECT reason FROM retrain_links WHERE state = 'failed'")
        assert all("File too large" in reason for (reason,) in reasons)
        assert versions() == [1, 1, 1, 2, 2, 2]
        resource.prlimit(workers[0].pid, resource.RLIMIT_FSIZE, (most, most))
        fourth = queue_run(engine, {**QUICK_RUN, "n_neighbors": 5})
        wait_for(lambda: states(fourth) == {("succeeded", "done")})
        assert versions() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        assert artifacts() == sorted(f"{link_id}/{version}" for link_id in city.counts for version in (1, 2, 3))
        wait_for(lambda: not list((tmp_path / "models").glob(".training-*")))
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
            worker.wait(timeout=WAIT_SECONDS)
        engine.dispose()
