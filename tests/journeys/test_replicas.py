"""Several services and workers on one PostgreSQL, as on several machines: their models in a bucket, copies apart."""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg

from app.demo.city import City, links_geojson, sample_city
from tests.support.background import Background
from tests.support.buckets import SECRET, bucket_server
from tests.support.services import ADMIN_KEY, Service, running_service, running_worker
from tests.support.waiting import TRAINING_SECONDS, wait_until

SLOTS = 96
DAYS = 14  # of counts before the first forecast
GOOD = {"lags": 12, "n_neighbors": 8, "held_out_days": 4}
WORSE = {"lags": 1, "n_neighbors": 1, "held_out_days": 4}


class Replicas:
    """Two services with a city, and where its counts stand."""

    def __init__(self, services: list[Service], city: City, database: str) -> None:
        self.services, self.city, self.database, self.next = services, city, database, 0
        self.ids = sorted(city.counts)

    def request(self, of: int, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.services[of].request(method, path, body)
        assert status < 300, (path, answer)
        return answer

    def post(self, to: int, slots: int = 1) -> None:
        rows = [
            {"link_id": link_id, "slot_start": self.start(i), "count": int(self.city.counts[link_id][i])}
            for link_id in self.ids
            for i in range(self.next, self.next + slots)
            if self.city.counts[link_id][i] == self.city.counts[link_id][i]
        ]
        self.request(to, "POST", "/v1/counts", {"counts": rows})
        self.next += slots

    def start(self, i: int) -> str:
        return self.city.grid.start(self.city.first_slot + i).isoformat()

    def of_both(self, path: str) -> tuple[Any, Any]:
        """Send the same request to both services at once."""
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(lambda of: self.request(of, "GET", path), (0, 1))
        return one, other

    def retrain(self, of: int, **body: Any) -> dict[str, Any]:
        run = self.request(
            of, "POST", "/v1/admin/retrain", {"links": "all", "algorithm": "KR_SML", "activate": "always", **body}
        )
        shown = self.services[1 - of].run_when(
            f"/v1/admin/retrain/{run['run_id']}", lambda now: now["state"] not in OPEN
        )
        assert shown["state"] == "succeeded", shown
        return shown

    def agreed(self, link_id: str, version: int) -> tuple[Any, Any] | None:
        """Return the forecast of a link once both services return the same one, of a version."""
        one, other = self.of_both(f"/v1/links/{link_id}/forecast?horizon=4")
        versions = {result["model_version"] for result in one["forecasts"]}
        return (one, other) if one == other and versions == {version} else None

    def versions(self, of: int) -> list[int | None]:
        answers = [self.request(of, "GET", f"/v1/links/{link_id}/forecast") for link_id in self.ids]
        return [answer["forecasts"][0]["model_version"] for answer in answers]

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(question).fetchall()  # type: ignore[call-overload]


OPEN = ("queued", "running")


def wait_for(question: Callable[[], Any]) -> Any:
    return wait_until(question, seconds=TRAINING_SECONDS)


class ForecastReader(Background):
    """Reads forecasts of one service again and again, and keeps each response that is wrong."""

    def __init__(self, replicas: Replicas, of: int) -> None:
        super().__init__()
        self.replicas, self.of, self.wrong, self.answers = replicas, of, [], 0

    def run(self) -> None:
        while not self.over.is_set():
            for link_id in self.replicas.ids:
                try:
                    status, answer = self.replicas.services[self.of].request(
                        "GET", f"/v1/links/{link_id}/forecast?horizon=4"
                    )
                    forecasts = {(one["method"], one["degraded_reason"]) for one in answer["forecasts"]}
                    if status != 200 or forecasts != {("KR", None)}:
                        self.wrong.append((status, answer))
                except OSError as problem:
                    self.wrong.append(problem)
                self.answers += 1
            self.over.wait(0.05)


def test_replicas_are_one_service(new_database, tmp_path):
    empty_database = new_database("postgresql")
    city = sample_city(links=2, days=DAYS + 4, seed=5)
    with ExitStack() as stack:
        server = stack.enter_context(bucket_server(tmp_path))
        store = server.make_bucket("models") + "/city"
        machines = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            machines.append(
                server.environment
                | {"FLOWCAST_MODEL_STORE": store, "FLOWCAST_MODEL_CACHE": str(tmp_path / name / "cache")}
            )

        def start(i: int) -> Service:
            folder = tmp_path / ("one", "two")[i]
            return stack.enter_context(running_service(empty_database, folder, "--no-worker", **machines[i]))

        with ThreadPoolExecutor(2) as pool:  # both find an empty database: one migrates, and the other waits for it
            services = list(pool.map(start, (0, 1)))
        replicas = Replicas(services, city, empty_database)
        assert len(replicas.rows("SELECT * FROM alembic_version")) == 1
        replicas.request(0, "POST", "/v1/links", links_geojson(city))
        replicas.post(0, DAYS * SLOTS)

        # A model trained on the second machine is served by both, and so is the one before it, at once.
        nightly = {
            "FLOWCAST_RETRAIN_SCHEDULE": "0 0 * * *",
            "FLOWCAST_RETRAIN_ALGORITHM": "KR",
        }
        workers = [stack.enter_context(running_worker(empty_database, tmp_path / "two", **machines[1], **nightly))]
        assert replicas.retrain(0, algorithm="KR", parameters=GOOD)["progress"]["done"] == len(replicas.ids)
        workers.append(stack.enter_context(running_worker(empty_database, tmp_path / "one", **machines[0], **nightly)))
        replicas.retrain(1, algorithm="KR", parameters=WORSE)
        assert replicas.versions(0) == [2, 2]
        with ForecastReader(replicas, of=1) as reader:
            wait_for(lambda: reader.answers > 5)
            for version in (1, 2, 1):
                for link_id in replicas.ids:
                    replicas.request(0, "POST", f"/v1/admin/links/{link_id}/models/{version}/activate")
                for link_id in replicas.ids:  # at first no forecasts of this version are issued
                    wait_for(lambda link_id=link_id, version=version: replicas.agreed(link_id, version))
                replicas.post(version % 2)
                seen = reader.answers
                wait_for(lambda seen=seen: reader.answers > seen + 5)
        assert reader.wrong == []

        # Every forecast was issued once and completely by one of the services.
        issued = (
            "SELECT count(*), count(DISTINCT horizon), count(DISTINCT issued_at) FROM forecasts "
            "GROUP BY link_key, slot_start - 900 * horizon, model_version"
        )
        assert set(replicas.rows(issued)) == {(4, 4, 1)}

        # At midnight one of the two workers makes one run for all.
        scheduled = "SELECT occasion, state FROM retrain_runs WHERE requested_by = 'schedule' ORDER BY id"
        assert replicas.rows(scheduled) == []
        # By the lock: a worker that only tries to get it is connected for a moment, too.
        # Other tests' schedulers hold the same lock in other databases of this server.
        holder = (
            "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) "
            "WHERE datname = current_database() AND application_name LIKE 'flowcast scheduler%' "
            "AND locktype = 'advisory' AND granted"
        )
        replicas.post(0, SLOTS)
        [(first, _)] = wait_for(lambda: (runs := replicas.rows(scheduled)) and runs[0][1] == "succeeded" and runs)
        [(name,)] = replicas.rows(holder)
        [leader] = [worker for worker in workers if f":{worker.pid}:" in name]
        leader.send_signal(signal.SIGKILL)  # and when that one is gone, the other does
        leader.wait()
        replicas.post(1, SLOTS)
        runs = wait_for(lambda: len(runs := replicas.rows(scheduled)) == 2 and runs[1][1] == "succeeded" and runs)
        assert runs[0][0] == first != runs[1][0]
        [(name,)] = replicas.rows(holder)
        assert f":{leader.pid}:" not in name

        # What is in memory is still served while the store is unreachable; only known artifacts are activated.
        served = replicas.versions(0)
        assert replicas.versions(1) == served
        server.process.kill()
        server.process.wait()
        replicas.post(0)
        for link_id, version in zip(replicas.ids, served, strict=True):
            one, _ = wait_for(lambda link_id=link_id, version=version: replicas.agreed(link_id, version))
            assert {(result["method"], result["degraded_reason"]) for result in one["forecasts"]} == {("KR", None)}
        status, refused = services[1].request("POST", f"/v1/admin/links/{replicas.ids[0]}/models/2/activate")
        assert status == 409
        assert f"the model store {store} is out of reach" in refused["detail"]
    copies = [{path.name for path in tmp_path.glob(f"{name}/cache/*/{replicas.ids[0]}/*")} for name in ("one", "two")]
    assert all({"1", "2"} <= copy for copy in copies)
    assert not list(tmp_path.rglob(".training-*"))
    for log in tmp_path.rglob("*.log"):
        assert SECRET not in log.read_text()
        assert ADMIN_KEY not in log.read_text()
