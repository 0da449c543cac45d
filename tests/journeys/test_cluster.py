"""Training on a Dask cluster: a real scheduler, real Dask workers, a real worker, and what becomes of their deaths."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.core.database import open_database, reading, writing
from app.demo.city import sample_city
from app.links.queries import link_keys, links_by_id
from app.registry.queries import find_version, newest_version
from app.registry.store import ModelStore
from app.settings import Settings
from app.training.cluster import Cluster, ClusterUnavailable, code_facts
from app.training.request import cancel_run, request_run
from app.training.routes import show_run
from app.training.schemas import RunDetail
from app.worker.worker import Worker
from model.artifacts.folder import MANIFEST
from tests.support.dask_cluster import DaskCluster
from tests.support.databases import on_sqlite
from tests.support.services import running_worker
from tests.support.stored import store_city
from tests.support.waiting import TRAINING_SECONDS, wait_until

LINKS, DAYS = 2, 14
QUICK = {"held_out_days": 3, "max_iter": 2, "mu": [1e-3]}
SLOW = {"lags": 100, "n_neighbors": 50, "max_iter": 30, "held_out_days": 4, "mu": [1e-2, 1e-3]}  # a second
MINUTES = SLOW | {"lags": 400, "n_neighbors": 100, "max_iter": 500, "mu": [10.0**-power for power in range(10)]}
FAILURES = 1  # that a link may survive; one more and it is the link's fault

pytestmark = on_sqlite


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    """Yield a cluster without started processes."""
    (tmp_path / "dask").mkdir()
    with DaskCluster(tmp_path / "dask", DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=str(FAILURES)) as found:
        yield found


class Runs:
    """A database with the sample city and retrain runs."""

    def __init__(self, engine: Engine, folder: Path, link_ids: list[str]) -> None:
        self.engine, self.folder, self.link_ids = engine, folder, link_ids

    def request(
        self, algorithm: str, parameters: dict[str, Any], *, links: int = LINKS, activate: Any = "never"
    ) -> int:
        with writing(self.engine) as session:
            asked = list(links_by_id(session, self.link_ids[:links]).values())
            return request_run(session, asked, algorithm, parameters, activate=activate, requested_by="a test")[0].id

    def cancel(self, run_id: int) -> None:
        with writing(self.engine) as session:
            cancel_run(session, run_id)

    def shown(self, run_id: int) -> RunDetail:
        with reading(self.engine) as session:
            return show_run(session, run_id)

    def when(self, run_id: int, what: Callable[[RunDetail], bool]) -> RunDetail:
        def shown() -> RunDetail | None:
            now = self.shown(run_id)
            return now if what(now) else None

        return wait_until(shown, seconds=TRAINING_SECONDS, explain=lambda: (self.shown(run_id), self.log()))

    def is_over(self, run_id: int) -> bool:
        return self.shown(run_id).state not in ("queued", "running")

    def ended(self, run_id: int) -> RunDetail:
        return self.when(run_id, lambda run: run.state not in ("queued", "running"))

    def log(self) -> str:
        log = self.folder / "worker.log"
        return log.read_text() if log.exists() else ""

    def logged(self, message: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["message"] == message]

    def newest_versions(self) -> dict[str, int]:
        with reading(self.engine) as session:
            keys = link_keys(session, self.link_ids)
            return {link_id: newest_version(session, key) for link_id, key in keys.items()}

    def arrays(self, link_id: str, version: int) -> dict[str, str]:
        """Return the fingerprints of a version's arrays; its own depends on the time of writing."""
        with reading(self.engine) as session:
            row = find_version(session, links_by_id(session, [link_id])[link_id].link_key, version)
        assert row is not None
        manifest = json.loads((ModelStore(self.folder / "models").path(row.folder) / MANIFEST).read_text())
        return {name: entry["sha256"] for name, entry in manifest["arrays"].items()}


@pytest.fixture
def runs(database_url: str, tmp_path: Path) -> Iterator[Runs]:
    engine, city = open_database(database_url), sample_city(links=LINKS, days=DAYS)
    store_city(engine, city)
    yield Runs(engine, tmp_path, list(city.counts))
    engine.dispose()


@contextmanager
def flowcast_worker(runs: Runs, **settings: str) -> Iterator[None]:
    with running_worker(runs.engine.url.render_as_string(), runs.folder, **settings) as process:
        yield
    assert process.returncode == 0, runs.log()


class ClusterState:
    """The state of the cluster, read by another client."""

    def __init__(self, address: str) -> None:
        from distributed import Client

        self._client = Client(address, set_as_default=False)

    def __enter__(self) -> "ClusterState":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def workers(self) -> int:
        return len(self._client.nthreads())

    def executing(self) -> dict[str, int]:
        """Return the calls that occupy a thread, with the process of each."""

        def asked(dask_worker: Any) -> tuple[list[str], int]:
            import os

            return [task.key for task in dask_worker.state.all_running_tasks], os.getpid()

        return {key: process for keys, process in self._client.run(asked, on_error="ignore").values() for key in keys}


@contextmanager
def working(runs: Runs, **settings: Any) -> Iterator[None]:
    """Execute queued runs in a thread during a block."""
    given = {"database_url": runs.engine.url.render_as_string(), "model_store": runs.folder / "models"}
    worker, over = Worker(runs.engine, Settings(**given, retrain_jobs=1, **settings)), threading.Event()
    went_wrong: list[BaseException] = []

    def work() -> None:
        try:
            while not over.wait(0.1):
                worker.work_once()
        except BaseException as problem:
            went_wrong.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        worker.stop()
        thread.join(timeout=TRAINING_SECONDS)
    assert not thread.is_alive()
    assert not went_wrong


def test_a_cluster_from_its_absence_through_its_deaths_to_its_loss(cluster, runs, monkeypatch):
    """Use one cluster for several runs, because each of its processes takes seconds to start."""
    # A scheduler that is away is waited for.
    run_id = runs.request("KR_SML", SLOW)
    with flowcast_worker(runs, FLOWCAST_DASK_SCHEDULER=cluster.address, FLOWCAST_DASK_AWAY="wait"):
        waits = runs.when(run_id, lambda run: run.detail is not None)
        assert waits.state == "running"
        assert waits.detail == f"waits for the Dask scheduler {cluster.address}: Connection refused"
        assert waits.progress.waiting == LINKS
        assert runs.logged("the cluster is unreachable")[0]["reason"] == "Connection refused"
        cluster.start_scheduler()
        cluster.start_workers(1)
        ended = runs.ended(run_id)
        assert (ended.state, ended.detail, ended.progress.done) == ("succeeded", None, LINKS)
        run_id = runs.request("KR_SML", MINUTES)
        runs.when(run_id, lambda run: run.progress.training > 0)
    left = runs.shown(run_id)  # its worker was stopped and has put it down
    assert (left.state, left.detail) == ("queued", None)
    runs.cancel(run_id)

    with ClusterState(cluster.address) as inside:
        wait_until(lambda: not inside.executing(), seconds=TRAINING_SECONDS)  # the link that was put down
        # On a busy machine a connection may time out; the run then waits instead of being trained here.
        with working(runs, dask_scheduler=cluster.address, dask_away="wait"):
            go_on_after_the_death_of_a_dask_worker(runs, cluster, inside)
            fail_a_link_that_ends_dask_workers(runs, cluster, inside)
            cancel_what_a_dask_worker_computes(runs, inside)
    train_the_same_on_the_cluster_as_here(runs, cluster)
    refuse_a_cluster_with_another_flowcast(cluster, monkeypatch)

    with working(runs, dask_scheduler=cluster.address):
        do_without_a_scheduler_that_dies(runs, cluster)


def go_on_after_the_death_of_a_dask_worker(runs: Runs, cluster: DaskCluster, inside: ClusterState) -> None:
    """Kill one of two Dask workers while each trains a link: the other one trains both."""
    cluster.start_workers(1)
    wait_until(lambda: inside.workers() == 2)
    before, run_ids, executing = runs.newest_versions(), list[int](), dict[str, int]()

    def seen() -> tuple[dict[str, int]] | None:
        found = inside.executing()
        return (found,) if len(found) == LINKS or runs.is_over(run_ids[-1]) else None

    while len(executing) < LINKS:  # on a busy machine a run may be over before both were seen
        run_ids.append(runs.request("KR_SML", SLOW))
        [executing] = wait_until(seen, seconds=TRAINING_SECONDS)
    os.kill(next(iter(executing.values())), signal.SIGKILL)
    ended = runs.ended(run_ids[-1])
    assert (ended.state, ended.detail, ended.progress.done) == ("succeeded", None, LINKS)
    assert runs.newest_versions() == {link_id: version + len(run_ids) for link_id, version in before.items()}
    wait_until(lambda: inside.workers() == 1)


def do_without_a_scheduler_that_dies(runs: Runs, cluster: DaskCluster) -> None:
    """Kill the scheduler when one link is done: that link stays as it is, and the other is trained here."""
    half = ended = None
    # All links may have been done before the kill, or the connection may have timed out on a busy machine.
    while half is None or ended is None or half.detail is not None or ended.detail is None:
        if ended is not None:
            cluster.start_scheduler()
            cluster.start_workers(1)
        before, run_id = runs.newest_versions(), runs.request("KR_SML", SLOW)
        half = runs.when(run_id, lambda run: run.progress.done > 0)
        cluster.scheduler.kill()
        cluster.scheduler.wait()
        ended = runs.ended(run_id)
    assert (ended.state, ended.progress.done) == ("succeeded", LINKS)
    want = f"trained in local processes, without the Dask scheduler {cluster.address}: Connection refused"
    assert ended.detail == want
    done = {link.link_id: link.finished_at for link in half.links if link.state == "done"}
    assert {link.link_id: link.finished_at for link in ended.links if link.link_id in done} == done
    assert runs.newest_versions() == {link_id: version + 1 for link_id, version in before.items()}


def fail_a_link_that_ends_dask_workers(runs: Runs, cluster: DaskCluster, inside: ClusterState) -> None:
    """Kill one Dask worker after another during the same link, which makes the link fail."""
    run_id = runs.request("KR_SML", MINUTES, links=1)
    deaths: Counter[str] = Counter()
    while max(deaths.values(), default=0) <= FAILURES:  # a link that is sent anew, on a busy machine, has another key
        [(key, process)] = wait_until(inside.executing, seconds=TRAINING_SECONDS).items()
        deaths[key] += 1
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: not inside.workers())
        cluster.start_workers(1)
    ended = runs.ended(run_id)
    assert [link.state for link in ended.links] == ["failed"]
    assert ended.links[0].reason.startswith(f"it ended {FAILURES + 1} Dask workers in a row")


def cancel_what_a_dask_worker_computes(runs: Runs, inside: ClusterState) -> None:
    """Cancel a run and assert that the Dask worker is idle and running."""
    run_id = runs.request("KR_SML", MINUTES, links=1)
    wait_until(inside.executing, seconds=TRAINING_SECONDS)
    runs.cancel(run_id)
    assert runs.ended(run_id).state == "cancelled"
    # To its end it would take longer than this.
    wait_until(lambda: not inside.executing(), seconds=TRAINING_SECONDS)
    assert inside.workers() == 1


def train_the_same_on_the_cluster_as_here(runs: Runs, cluster: DaskCluster) -> None:
    """Train in this process and on the cluster: figures and artifacts are equal."""
    models = runs.folder / "models"
    given: dict[str, Any] = {"database_url": runs.engine.url.render_as_string(), "model_store": models}
    here = Worker(runs.engine, Settings(**given, retrain_jobs=1))
    there = Worker(runs.engine, Settings(**given, retrain_jobs=1, dask_scheduler=cluster.address, dask_away="wait"))
    active = runs.request("KR", QUICK | {"lags": 12}, activate="always")  # which the others are compared with
    assert here.work_once()
    assert runs.shown(active).state == "succeeded"
    for algorithm, parameters in (("KR_SML", QUICK | {"lags": 12}), ("NETWORK", QUICK)):
        found = []
        for worker in (here, there):
            run_id = runs.request(algorithm, parameters)
            assert worker.work_once()
            found.append(runs.shown(run_id))
        ours, theirs = found
        assert (theirs.state, theirs.detail, theirs.progress.done) == ("succeeded", None, LINKS)
        for one, other in zip(ours.links, theirs.links, strict=True):
            assert other.figures == one.figures
            assert "active" in other.figures
            assert runs.arrays(other.link_id, other.version) == runs.arrays(one.link_id, one.version)
    assert not list(models.glob(".training-*"))


def refuse_a_cluster_with_another_flowcast(cluster: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("app.training.cluster.code_facts", lambda: code_facts() | {"its code": "newer"})
        with pytest.raises(
            ClusterUnavailable, match=r"^the scheduler has another Flowcast: its code is \w+ there and newer here$"
        ):
            Cluster(cluster.address).connect()
