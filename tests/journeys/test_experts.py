"""Weights of experts with real processes: the same after kills, in every process, and computed again."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from app.core.database import open_database, reading
from app.core.schema import upgrade_schema
from app.demo.city import links_geojson
from app.registry.tables import Ensemble
from app.settings import Settings
from model.aggregation.state import unpack
from tests.support.city import rows
from tests.support.experts import NOW, TrainedExperts, train_experts
from tests.support.services import Service, environment, run_flowcast, running_service
from tests.support.waiting import wait_until

SLOTS = 40  # that are posted, one after another
KILLED_AFTER = (7, 15, 26)  # so many acknowledged slots


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedExperts:
    return train_experts(tmp_path_factory.mktemp("experts"))


class RestartedService:
    """A service with the experts of a city, which is started again after it was killed."""

    def __init__(self, url: str, folder: Path, trained: TrainedExperts, stack: ExitStack) -> None:
        folder.mkdir()
        self.url, self.folder, self.city, self.stack = url, folder, trained.city, stack
        self.acknowledged = 0
        self.start()
        assert self.service.request("POST", "/v1/links", links_geojson(self.city))[0] in (200, 201)
        added = run_flowcast("models", "add", trained.folder, "--activate", **environment(url, folder))
        assert added.returncode == 0, added.stderr
        self.post(0, NOW)

    def start(self) -> None:
        self.service: Service = self.stack.enter_context(running_service(self.url, self.folder))

    def post(self, first: int, last: int) -> None:
        """Post the counts of slots, until they are acknowledged."""
        counts = {"counts": rows(self.city, first, last)}

        def is_acknowledged() -> bool:
            with suppress(OSError):  # the process was killed; the next one listens elsewhere
                return self.service.request("POST", "/v1/counts", counts)[0] == 200
            return False

        wait_until(is_acknowledged)

    def post_slots(self) -> None:
        for i in range(NOW, NOW + SLOTS):
            self.post(i, i + 1)
            self.acknowledged += 1

    def forecasts(self) -> Any:
        status, answer = self.service.request("GET", "/v1/forecasts?horizon=4")
        assert status == 200
        return {
            link["link_id"]: [(one["method"], one["expected_count"], one["lower"]) for one in link["forecasts"]]
            for link in answer["links"]
        }

    def states(self) -> dict[int, tuple[int | None, Any]]:
        engine = open_database(Settings(database_url=self.url).database_url)
        with reading(engine) as session:
            found = {row.link_key: (row.as_of, unpack([row.state])) for row in session.scalars(select(Ensemble))}
        engine.dispose()
        return found


def assert_same(one: dict[int, tuple[int | None, Any]], other: dict[int, tuple[int | None, Any]]) -> None:
    assert one.keys() == other.keys()
    for key, (as_of, state) in one.items():
        assert as_of == other[key][0]
        for part in ("regrets.cumulated", "regrets.squares", "factors.factors", "experts", "expected"):
            here, there = state, other[key][1]
            for name in part.split("."):
                here, there = getattr(here, name), getattr(there, name)
            np.testing.assert_allclose(here, there, rtol=1e-6, err_msg=part)


@pytest.fixture
def services(
    database_url: str, new_database: Any, tmp_path: Path, trained: TrainedExperts
) -> Iterator[tuple[RestartedService, RestartedService]]:
    """Return two services with a database each."""
    second = str(new_database(database_url.partition(":")[0]))
    engine = open_database(Settings(database_url=second).database_url)
    upgrade_schema(engine)
    engine.dispose()
    with ExitStack() as stack:
        yield (
            RestartedService(database_url, tmp_path / "killed", trained, stack),
            RestartedService(second, tmp_path / "quiet", trained, stack),
        )


def test_kills_leave_the_weights_and_forecasts_of_a_quiet_feed(services):
    killed, quiet = services
    sender = Thread(target=killed.post_slots)
    sender.start()
    for after in KILLED_AFTER:
        wait_until(lambda after=after: killed.acknowledged >= after)
        killed.service.kill()
        killed.start()
    sender.join()
    quiet.post_slots()
    forecasts = killed.forecasts()
    assert forecasts == quiet.forecasts()
    assert {method for link in forecasts.values() for method, _, _ in link} == {"ENSEMBLE"}
    assert_same(killed.states(), quiet.states())

    # A second process, and weights that are computed again, are the same.
    again = run_flowcast("models", "rebuild-weights", "--all", **environment(killed.url, killed.folder))
    assert again.returncode == 0, again.stderr
    assert_same(killed.states(), quiet.states())
    with running_service(killed.url, killed.folder) as other:
        status, answer = other.request("GET", "/v1/forecasts?horizon=4")
        assert status == 200
        shown = {link["link_id"]: [one["expected_count"] for one in link["forecasts"]] for link in answer["links"]}
        assert shown == {link_id: [expected for _, expected, _ in link] for link_id, link in forecasts.items()}
