"""Retrain, compare, swap, roll back, and go on after every kill: real processes on PostgreSQL."""

import http.client
import json
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from app.demo.city import City, links_geojson, sample_city
from tests.support.background import Background
from tests.support.databases import UNUSED_DATABASES, create_database
from tests.support.services import ADMIN_KEY, Service, running_service, running_worker
from tests.support.waiting import TRAINING_SECONDS, WAIT_SECONDS, wait_until

SLOTS, DAYS = 96, 16
GOOD = {"lags": 12, "n_neighbors": 8, "max_iter": 4, "held_out_days": 4, "mu": [1e-3]}
WORSE = {"lags": 1, "n_neighbors": 1, "held_out_days": 4}
SLOW = GOOD | {"lags": 45, "n_neighbors": 20, "max_iter": 25}
MINUTES = GOOD | {"lags": 400, "n_neighbors": 100, "max_iter": 500, "mu": [10.0**-power for power in range(10)]}
NETWORK = {"held_out_days": 4, "max_iter": 2, "mu": [1e-3]}
T = TypeVar("T")


@pytest.fixture(scope="module")
def city() -> City:
    """Return a city whose recent counts are more informative than the profile."""
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


@dataclass(frozen=True)
class CityService:
    """A service without a worker, with the city, and where it keeps its data."""

    service: Service
    database_url: str
    folder: Path

    def worker(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Start a worker that trains in its own process: others take longer to start than that."""
        return running_worker(self.database_url, self.folder)


@pytest.fixture(scope="module")
def city_service(
    postgresql: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory, city: City
) -> Iterator[CityService]:
    folder, name = tmp_path_factory.mktemp("service"), f"test_{uuid.uuid4().hex}"
    url = create_database(postgresql, name, "template")
    with running_service(url, folder) as service:
        put_city(service, city)
        yield CityService(service, url, folder)
    UNUSED_DATABASES.append(name)


def put_city(service: Service, city: City) -> None:
    assert service.request("POST", "/v1/links", links_geojson(city))[0] == 200
    rows = [
        {"link_id": link_id, "slot_start": city.grid.start(city.first_slot + i).isoformat(), "count": int(count)}
        for link_id, counts in city.counts.items()
        for i, count in enumerate(counts)
        if count == count
    ]
    assert service.request("POST", "/v1/counts", {"counts": rows})[0] == 200


def queue(service: Service, **body: object) -> str:
    """Queue a run and return its path."""
    status, run = service.request("POST", "/v1/admin/retrain", {"links": "all", "algorithm": "KR_SML", **body})
    assert status == 202, run
    return f"/v1/admin/retrain/{run['run_id']}"


def ended(service: Service, path: str) -> dict:
    """Wait until a run is over and return it."""
    return service.run_when(path, lambda run: run["state"] in ("succeeded", "failed", "cancelled"))


def retrain(service: Service, **body: object) -> dict:
    return ended(service, queue(service, **body))


def wait_for(condition: Callable[[], T]) -> T:
    return wait_until(condition, seconds=TRAINING_SECONDS)


class ForecastReader(Background):
    """Reads one forecast after another, and keeps each response that is wrong."""

    def __init__(self, service: Service, link_ids: list[str]) -> None:
        super().__init__()
        self.service, self.link_ids = service, link_ids
        self.answers, self.wrong = 0, []

    def run(self) -> None:
        while not self.over.is_set():
            for link_id in self.link_ids:
                try:
                    status, answer = self.service.request("GET", f"/v1/links/{link_id}/forecast?horizon=4")
                except Exception as problem:
                    self.wrong.append(repr(problem))
                    continue
                self.answers += 1
                if status != 200 or len({(f["model_version"], f["issued_at"]) for f in answer["forecasts"]}) != 1:
                    self.wrong.append((status, answer))
                self.over.wait(0.03)  # a stream, not a flood: what trains needs the cores, too


def version(service: Service, link_id: str) -> int | None:
    return service.request("GET", f"/v1/links/{link_id}/forecast")[1]["forecasts"][0]["model_version"]


class EventListener:
    """Keeps the events of a service until the first activation."""

    def __init__(self, service: Service) -> None:
        self.service, self.received, self.ready = service, [], threading.Event()
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()
        assert self.ready.wait(WAIT_SECONDS)

    def listen(self) -> None:
        name = ""
        with self.service.stream("/v1/events") as answer:
            for raw in answer:
                line = raw.decode().strip()
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    self.received.append((name, json.loads(line[6:])))
                    self.ready.set()
                    if name == "activation":
                        return

    def events(self) -> list[tuple[str, dict]]:
        self.thread.join(timeout=WAIT_SECONDS)
        return self.received


def test_retrain_compare_swap_and_roll_back_under_a_stream_of_requests(city_service, city):
    ids, service = sorted(city.counts)[:2], city_service.service
    with city_service.worker(), ForecastReader(service, ids) as asking:
        # Events and progress come as they happen.
        listening = EventListener(service)
        start = city.grid.start(city.first_slot + DAYS * SLOTS).isoformat()
        service.request("POST", "/v1/counts", {"counts": [{"link_id": ids[0], "slot_start": start, "count": 9}]})
        path = queue(service, links=ids, algorithm="KR", parameters=WORSE, activate="always")
        with service.stream(path, Accept="text/event-stream") as answer:  # ends by itself when the run does
            lines = answer.read().decode().splitlines()
        states = [json.loads(line[6:])["state"] for line in lines if line.startswith("data: ")]
        assert states[-1] == "succeeded"
        assert "running" in states
        events = listening.events()
        assert events[0][0] == "ready"
        assert ("forecast", ids[0]) in [(name, data.get("link_id")) for name, data in events]
        assert events[-1][0] == "activation"
        assert events[-1][1]["link_id"] in ids

        first = service.request("GET", path)[1]
        assert {link["outcome"] for link in first["links"]} == {"activated"}
        better = retrain(service, links=ids, parameters=GOOD, activate="if_better")
        assert better["state"] == "succeeded"
        activated = [link for link in better["links"] if link["outcome"] == "activated"]
        assert activated, better["links"]
        for link in better["links"]:
            assert set(link["figures"]) >= {"candidate", "active", "KR", "profile"}
        worse = retrain(service, links=ids, algorithm="KR", parameters=WORSE, activate="if_better")
        assert {link["outcome"] for link in worse["links"]} == {"refused"}
        assert all("held-out" in link["reason"] for link in worse["links"])
        link = activated[0]
        old = next(one["version"] for one in first["links"] if one["link_id"] == link["link_id"])
        path = f"/v1/admin/links/{link['link_id']}/models/{old}/activate"
        assert service.request("POST", path, {"reason": "rolled back"})[0] == 200
        wait_until(lambda: {version(service, link["link_id"]) for _ in range(10)} == {old})
        history = service.request("GET", f"/v1/admin/links/{link['link_id']}/activations")[1]["activations"][:3]
        assert [one["version"] for one in history] == [old, link["version"], old]
        assert history[1]["figures"]["candidate"]["rmse"] < history[1]["figures"]["active"]["rmse"]
        wait_until(lambda: asking.answers > 50)
    assert asking.wrong == []


def test_a_head_of_a_stream_ends(city_service):
    connection = http.client.HTTPConnection("127.0.0.1", city_service.service.port, timeout=WAIT_SECONDS)
    for path in ("/v1/events", "/livez"):  # over one connection
        connection.request("HEAD", path, headers={"X-API-Key": ADMIN_KEY})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.close()


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


def kill_while_it_trains(service: Service, how: signal.Signals) -> None:
    """Stop a service with a worker while it trains, and wait until all its processes have ended."""
    with service.stream("/v1/events"):  # which must not hold the service up
        left = wait_for(lambda: training_processes(service.process.pid))
        service.process.send_signal(how)
        service.process.wait(timeout=WAIT_SECONDS)
    wait_until(lambda: not any(is_alive(process) for process in left))


def test_runs_survive_the_end_of_every_process_that_trains_them(city_service, city):
    """One run is passed on from process to process, because each of them takes seconds to start."""
    ids, service, models = sorted(city.counts), city_service.service, city_service.folder / "models"
    kept = {path.relative_to(models).as_posix() for path in models.glob("[!.]*/*")}

    def service_with_worker() -> AbstractContextManager[Service]:
        return running_service(city_service.database_url, city_service.folder, worker=True, FLOWCAST_RETRAIN_JOBS="2")

    with service_with_worker() as other:
        # A run under way can be cancelled: it would take minutes, and is not waited for. The worker goes on.
        path = queue(service, parameters=MINUTES)
        service.run_when(path, lambda run: run["progress"]["training"])
        assert service.request("DELETE", path)[1]["cancel_requested"]
        assert ended(service, path)["state"] == "cancelled"
        quick = retrain(service, links=ids[:1], parameters=GOOD, activate="never")
        assert quick["state"] == "succeeded"

        # Nothing outlives a service that ends while it trains, and the next one takes the run up.
        path = queue(service, parameters=MINUTES)
        service.run_when(path, lambda run: run["progress"]["training"])
        kill_while_it_trains(other, signal.SIGTERM)
    with service_with_worker() as other:
        kill_while_it_trains(other, signal.SIGKILL)
    service.request("DELETE", path)

    # A worker killed in the middle costs time and no link.
    runs = [quick]
    while True:
        with city_service.worker() as worker:
            assert ended(service, path)["state"] in ("cancelled", "succeeded")
            path = queue(service, parameters=SLOW, activate="always")
            service.run_when(path, lambda run: run["progress"]["done"])
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        before = service.request("GET", path)[1]
        if before["progress"]["done"] < len(ids):
            break
        runs.append(before)  # a busy machine was too late: all links were done
    assert before["state"] == "running"
    done = {link["link_id"]: link["finished_at"] for link in before["links"] if link["state"] == "done"}

    # The next one ends that run, and is killed while a network is learnt in a process of its own.
    with city_service.worker() as worker:
        ended_run = ended(service, path)
        network = queue(service, algorithm="NETWORK", parameters=NETWORK, activate="always")
        wait_for(lambda: list(models.glob(".training-*/.network-*")))
        children = wait_for(lambda: trains(worker.pid))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert ended_run["state"] == "succeeded"
    for link in ended_run["links"]:
        assert link["state"] == "done"
        assert link["finished_at"] == done.get(link["link_id"], link["finished_at"])
    assert service.request("GET", network)[1]["progress"]["done"] == 0
    wait_until(lambda: not any(is_alive(child) for child in children))

    with city_service.worker():
        after = ended(service, network)
    assert after["state"] == "succeeded"
    assert {link["outcome"] for link in after["links"]} == {"activated"}
    for link_id in ids:
        answer = service.request("GET", f"/v1/links/{link_id}/forecast?horizon=4")[1]["forecasts"]
        assert {one["method"] for one in answer} == {"NETWORK"}
    assert len(list((models / ".networks").iterdir())) == 1
    # None was trained and registered twice.
    new = {path.relative_to(models).as_posix() for path in models.glob("[!.]*/*")} - kept
    registered = [link for run in (*runs, ended_run, after) for link in run["links"]]
    assert new == {f"{link['link_id']}/{link['version']}" for link in registered}
    assert len(new) == len(registered)
    assert not list(models.glob(".training-*"))
