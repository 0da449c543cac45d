"""Retrain, compare, swap, roll back: real processes, on both databases."""

import http.client
import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from app.demo.city import City, links_geojson, sample_city
from tests.support.databases import on_postgresql, on_sqlite
from tests.support.services import ADMIN_KEY, Service, running_service, running_worker
from tests.support.waiting import TRAINING_SECONDS, WAIT_SECONDS, wait_until

SLOTS, DAYS = 96, 16
GOOD = {"lags": 12, "n_neighbors": 8, "max_iter": 4, "held_out_days": 4, "mu": [1e-3]}
WORSE = {"lags": 1, "n_neighbors": 1, "held_out_days": 4}
T = TypeVar("T")
ONE_JOB = {"FLOWCAST_RETRAIN_JOBS": "1"}  # in the worker itself: processes that train take longer to start than that


@pytest.fixture(scope="module")
def city() -> City:
    """Three roads so restless that their last hours say more than the calendar."""
    quiet, rng = sample_city(links=3, days=DAYS, seed=3), np.random.default_rng(3)
    n = len(next(iter(quiet.counts.values())))
    day = 100 + 40 * np.sin(np.arange(n) / SLOTS * 2 * np.pi)
    counts = {}
    for link_id in quiet.counts:
        steps = rng.normal(0, 0.08, n)
        swing = np.zeros(n)
        for i in range(1, n):
            swing[i] = 0.985 * swing[i - 1] + steps[i]
        counts[link_id] = rng.poisson(day * np.exp(swing)).astype(float)
    return replace(quiet, counts=counts)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, city: City) -> Iterator[Service]:
    """A service with a worker and the city, for tests that leave both as they were."""
    folder = tmp_path_factory.mktemp("service")
    with running_service(f"sqlite:///{folder}/flowcast.db", folder, worker=True) as running:
        put_city(running, city)
        yield running


def put_city(service: Service, city: City) -> None:
    assert service.ask("POST", "/v1/links", links_geojson(city))[0] == 200
    rows = [
        {"link_id": link_id, "slot_start": city.grid.start(city.first_slot + i).isoformat(), "count": int(count)}
        for link_id, counts in city.counts.items()
        for i, count in enumerate(counts)
        if count == count
    ]
    assert service.ask("POST", "/v1/counts", {"counts": rows})[0] == 200


def queue(service: Service, **body: object) -> str:
    """Queue a run and return its path."""
    status, run = service.ask("POST", "/v1/admin/retrain", {"links": "all", "algorithm": "KR_SML", **body})
    assert status == 202, run
    return f"/v1/admin/retrain/{run['run_id']}"


def ended(service: Service, path: str) -> dict:
    """Wait until a run is over and return it."""

    def shown() -> dict | None:
        run = service.ask("GET", path)[1]
        return run if run["state"] in ("succeeded", "failed", "cancelled") else None

    return wait_until(shown, seconds=TRAINING_SECONDS, explain=lambda: service.ask("GET", path)[1])


def retrain(service: Service, **body: object) -> dict:
    return ended(service, queue(service, **body))


def progress(service: Service, path: str) -> dict:
    return service.ask("GET", path)[1]["progress"]


def wait_for(condition: Callable[[], T]) -> T:
    return wait_until(condition, seconds=TRAINING_SECONDS)


class Asking:
    """Asks for one forecast after another, and keeps whatever is wrong with an answer."""

    def __init__(self, service: Service, link_ids: list[str]) -> None:
        self.service, self.link_ids = service, link_ids
        self.answers, self.wrong, self.over = 0, [], threading.Event()
        self.thread = threading.Thread(target=self.ask)

    def ask(self) -> None:
        while not self.over.is_set():
            for link_id in self.link_ids:
                try:
                    status, said = self.service.ask("GET", f"/v1/links/{link_id}/forecast?horizon=4")
                except Exception as problem:
                    self.wrong.append(repr(problem))
                    continue
                self.answers += 1
                if status != 200 or len({(f["model_version"], f["issued_at"]) for f in said["forecasts"]}) != 1:
                    self.wrong.append((status, said))
                self.over.wait(0.01)  # a stream, not a flood: what trains needs the cores, too

    def __enter__(self) -> "Asking":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def version(service: Service, link_id: str) -> int | None:
    return service.ask("GET", f"/v1/links/{link_id}/forecast")[1]["forecasts"][0]["model_version"]


@on_postgresql
def test_retrain_compare_swap_and_roll_back_under_a_stream_of_requests(database_url, tmp_path, city):
    ids = sorted(city.counts)
    with running_service(database_url, tmp_path, "--workers", "2", worker=True, **ONE_JOB) as service:
        put_city(service, city)
        with Asking(service, ids) as asking:
            first = retrain(service, algorithm="KR", parameters=WORSE, activate="always")
            assert first["state"] == "succeeded"
            assert {link["outcome"] for link in first["links"]} == {"activated"}
            better = retrain(service, parameters=GOOD, activate="if_better")
            assert better["state"] == "succeeded"
            activated = [link for link in better["links"] if link["outcome"] == "activated"]
            assert activated, better["links"]
            for link in better["links"]:
                assert set(link["figures"]) >= {"candidate", "active", "KR", "profile"}
            worse = retrain(service, algorithm="KR", parameters=WORSE, activate="if_better")
            assert {link["outcome"] for link in worse["links"]} == {"refused"}
            assert all("held-out" in link["reason"] for link in worse["links"])
            link = activated[0]
            path = f"/v1/admin/links/{link['link_id']}/models/1/activate"
            assert service.ask("POST", path, {"reason": "rolled back"})[0] == 200
            wait_until(lambda: {version(service, link["link_id"]) for _ in range(10)} == {1})
            history = service.ask("GET", f"/v1/admin/links/{link['link_id']}/activations")[1]["activations"]
            assert [one["version"] for one in history] == [1, 2, 1]
            assert history[1]["figures"]["candidate"]["rmse"] < history[1]["figures"]["active"]["rmse"]
            wait_until(lambda: asking.answers > 50)
        assert asking.wrong == []


def test_events_and_progress_come_as_they_happen(service, city):
    heard: list[tuple[str, dict]] = []
    ready = threading.Event()

    def listen() -> None:
        name = ""
        with service.stream("/v1/events") as answer:
            for raw in answer:
                line = raw.decode().strip()
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    heard.append((name, json.loads(line[6:])))
                    ready.set()
                    if name == "activation":
                        return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert ready.wait(WAIT_SECONDS)
    link_id = sorted(city.counts)[0]
    start = city.grid.start(city.first_slot + DAYS * SLOTS).isoformat()
    service.ask("POST", "/v1/counts", {"counts": [{"link_id": link_id, "slot_start": start, "count": 9}]})
    path = queue(service, links=[link_id], parameters=GOOD, activate="always")
    with service.stream(path, Accept="text/event-stream") as answer:  # ends by itself when the run does
        lines = answer.read().decode().splitlines()
    states = [json.loads(line[6:])["state"] for line in lines if line.startswith("data: ")]
    assert states[-1] == "succeeded"
    assert "running" in states
    listener.join(timeout=WAIT_SECONDS)
    kinds = [name for name, _ in heard]
    assert kinds[0] == "ready"
    assert ("forecast", link_id) in [(name, data.get("link_id")) for name, data in heard]
    assert heard[-1][0] == "activation"
    assert heard[-1][1]["link_id"] == link_id


@on_postgresql
def test_a_worker_killed_in_the_middle_costs_time_and_no_link(database_url, tmp_path, city):
    ids = sorted(city.counts)
    with running_service(database_url, tmp_path) as service:
        put_city(service, city)
        slow = GOOD | {"lags": 45, "n_neighbors": 20, "max_iter": 25}
        path = queue(service, parameters=slow, activate="always")
        with running_worker(database_url, tmp_path) as worker:
            wait_for(lambda: progress(service, path)["done"] >= 1)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        before = service.ask("GET", path)[1]
        assert before["state"] == "running"
        assert before["progress"]["done"] < len(ids)
        done = {link["link_id"]: link["finished_at"] for link in before["links"] if link["state"] == "done"}
        with running_worker(database_url, tmp_path):
            after = ended(service, path)
        assert after["state"] == "succeeded"
        for link in after["links"]:
            assert (link["state"], link["version"]) == ("done", 1)  # nobody was trained and registered twice
            if link["link_id"] in done:
                assert link["finished_at"] == done[link["link_id"]]
        folders = sorted(path.relative_to(tmp_path / "models").as_posix() for path in (tmp_path / "models").glob("*/*"))
        assert folders == [f"{link_id}/1" for link_id in ids]
        assert not list((tmp_path / "models").glob(".training-*"))


def children_of(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for tasks in found for child in tasks.read_text().split()]


@on_sqlite
def test_a_worker_killed_during_network_training_leaves_no_process(database_url, tmp_path, city):
    with running_service(database_url, tmp_path) as service:
        put_city(service, city)
        quick = {"held_out_days": 4, "max_iter": 2, "mu": [1e-3]}
        path = queue(service, algorithm="NETWORK", parameters=quick, activate="always")
        with running_worker(database_url, tmp_path) as worker:
            wait_for(lambda: list(tmp_path.glob("models/.training-*/.network-*")))
            children = wait_for(lambda: children_of(worker.pid))
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        assert progress(service, path)["done"] == 0
        with running_worker(database_url, tmp_path):
            after = ended(service, path)
        assert after["state"] == "succeeded"
        assert {(link["outcome"], link["version"]) for link in after["links"]} == {("activated", 1)}
        assert len(list((tmp_path / "models" / ".networks").iterdir())) == 1
        for link_id in city.counts:
            said = service.ask("GET", f"/v1/links/{link_id}/forecast?horizon=4")[1]["forecasts"]
            assert {one["method"] for one in said} == {"NETWORK"}
        wait_until(lambda: not any(is_alive(child) for child in children))


def test_a_running_run_can_be_cancelled(service):
    minutes = GOOD | {"lags": 400, "n_neighbors": 100, "max_iter": 500, "mu": [10.0**-power for power in range(10)]}
    path = queue(service, parameters=minutes)
    wait_for(lambda: progress(service, path)["training"])
    assert service.ask("DELETE", path)[1]["cancel_requested"]
    shown = ended(service, path)  # a link takes minutes: what is under way is not waited for
    assert shown["state"] == "cancelled"
    one = sorted(link["link_id"] for link in shown["links"])[:1]
    assert retrain(service, links=one, parameters=GOOD, activate="never")["state"] == "succeeded"


def started_by(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, ppid = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(folder.name))
    return found


def is_alive(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def trains(worker: int) -> list[int]:
    """Return what a worker has started once a process that trains is among it."""
    children = started_by(worker)
    return children if any(b"LokyProcess" in command_of(child) for child in children) else []


def training_processes(service: int) -> list[int]:
    """Return the worker of a service and what it has started, once it trains."""
    found = [pid for worker in started_by(service) for pid in (worker, *trains(worker))]
    return found if len(found) > 1 else []


def command_of(process: int) -> bytes:
    try:
        return (Path("/proc") / str(process) / "cmdline").read_bytes()
    except OSError:
        return b""


def test_nothing_outlives_a_service_that_ends_while_it_trains(tmp_path, city):
    url, path = f"sqlite:///{tmp_path}/flowcast.db", ""
    slow = GOOD | {"lags": 45, "n_neighbors": 20, "max_iter": 25}
    for how in (signal.SIGTERM, signal.SIGKILL):  # one after the other, of the same run
        with running_service(url, tmp_path, worker=True, FLOWCAST_RETRAIN_JOBS="2") as service:
            if not path:
                put_city(service, city)
                two = {"links": sorted(city.counts)[:2], "parameters": slow, "activate": "never"}
                path = queue(service, **two)
            with service.stream("/v1/events"):  # which must not hold the service up
                left = wait_for(lambda: training_processes(service.process.pid))
                service.process.send_signal(how)
                service.process.wait(timeout=WAIT_SECONDS)
            wait_until(lambda left=left: not any(is_alive(process) for process in left))
    with running_service(url, tmp_path, worker=True) as service:
        shown = ended(service, path)
        assert (shown["state"], {link["version"] for link in shown["links"]}) == ("succeeded", {1})


def test_a_head_of_a_stream_ends(service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=WAIT_SECONDS)
    for path in ("/v1/events", "/livez"):  # over one connection
        connection.request("HEAD", path, headers={"X-API-Key": ADMIN_KEY})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.close()
