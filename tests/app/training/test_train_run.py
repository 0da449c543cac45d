"""Runs that train networks, refresh them or are cancelled meanwhile, and schedulers that cannot be reached."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor

from app.core.database import open_database, reading, writing
from app.demo.city import links_geojson, sample_city
from app.registry.store import ModelStore
from app.training.cluster import Cluster
from app.training.queries import run_with
from app.training.run_context import RunContext
from app.training.tables import RetrainRun
from app.training.train_run import connect_to_cluster
from app.worker.worker import Worker
from model.artifacts.link_models import load_model
from model.artifacts.network_models import load_network
from tests.support.city import SLOTS, post, rows
from tests.support.databases import on_sqlite
from tests.support.services import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

DAYS, YOUNG = 15, 3
NOWHERE = "tcp://dask-scheduler.invalid:8786"  # a name that never has an address
QUICK = {"held_out_days": 4, "max_iter": 1, "mu": [1e-3]}
CONTEXT = ["lags", "last_week", "profile", "deviations", "day_type", "network"]


@pytest.fixture(scope="module")
def processes():
    """Share processes for networks among runs, because their imports take longer than the work."""
    yield
    get_reusable_executor().shutdown(wait=True, kill_workers=True)


@pytest.fixture
def worker(client, settings, processes):
    worker = Worker(client.app.state.engine, settings.model_copy(update={"retrain_jobs": 1}))
    yield worker
    worker.close()


def queue(client, status=202, **body):
    answer = client.post("/v1/admin/retrain", json={"links": "all", **body})
    assert answer.status_code == status, answer.text
    return answer.json()


def run(client, worker, **body):
    number = queue(client, **body)["run_id"]
    assert worker.work_once()
    shown = client.get(f"/v1/admin/retrain/{number}").json()
    assert shown["state"] == "succeeded", shown
    return {link["link_id"]: link for link in shown["links"]}


@pytest.mark.journey
@on_sqlite
def test_a_run_of_best_reports_while_its_network_learns(client, city, worker, monkeypatch):
    entered, shares = [], []
    enter = RunContext.enter_stage

    def recorded(context, name, share=None):
        shares.extend(before() for _, before in entered)  # what a heartbeat would have stored last
        entered.append((name, share))
        enter(context, name, share)

    monkeypatch.setattr(RunContext, "enter_stage", recorded)
    links = run(client, worker, parameters=QUICK | {"lags": 12, "n_neighbors": 8})
    assert set(links) == set(city.counts)
    assert {link["state"] for link in links.values()} == {"done"}, links
    assert [name for name, _ in entered] == ["network", "links"]
    (share,) = shares
    assert 0.85 < share < 1.0  # of the last step that was begun


@pytest.mark.journey
@on_sqlite
class TestRuns:
    @pytest.fixture
    def city(self, client):
        city = sample_city(links=3, days=DAYS + 1, seed=5)
        assert client.post("/v1/links", json=links_geojson(city)).status_code in (200, 201)
        old, young = list(city.counts)[:2], list(city.counts)[2:]
        post(client, rows(city, 0, DAYS * SLOTS, old))
        post(client, rows(city, (DAYS - YOUNG) * SLOTS, DAYS * SLOTS, young))
        return city

    def test_learnt_from_all_links_compared_and_refreshed(self, client, city, worker, settings):
        one, two, young = city.counts
        store = ModelStore(settings.model_store)
        given = QUICK | {"context": CONTEXT}
        links = run(client, worker, links=[one], algorithm="NETWORK", parameters=given, activate="always")
        assert set(links) == {one}
        assert set(links[one]["figures"]) == {"candidate", "base", "KR", "profile", "last_week"}
        before, about = load_model(store.path(f"{one}/1"))
        assert set(before.network.link_ids) == set(city.counts)
        assert before.network.parts.names == about["plan"]["parts"] == CONTEXT
        assert about["held_out"]["candidate"]["rmse"]["n_used"] > 300
        assert client.get(f"/v1/links/{one}/models").json()["models"][0]["algorithm"] == "NETWORK"

        # A link trained by itself is compared with the network model that it has.
        quick = QUICK | {"lags": 12, "n_neighbors": 8}
        links = run(client, worker, links=[one], algorithm="KR", parameters=quick | {"mu": [1.0]})
        figures = links[one]["figures"]
        assert set(figures) == {"candidate", "KR", "profile", "last_week", "active"}
        assert figures["active"]["rmse"] is not None

        # A day later its counts join the memory, and so do links that have no model yet.
        post(client, rows(city, DAYS * SLOTS, (DAYS + 1) * SLOTS))
        links = run(client, worker, algorithm="NETWORK", refresh=True, parameters={"days": 28})
        assert {link["outcome"] for link in links.values()} == {"activated"}
        assert set(links) == {one, two, young}
        assert links[one]["reason"].startswith("refreshed: counts up to 2025-09-16T22:00:00")
        after, fresh = load_model(store.path(f"{one}/{links[one]['version']}"))
        assert after.network.parts.names == CONTEXT
        np.testing.assert_array_equal(after.own, before.own)
        np.testing.assert_array_equal(after.network.base.weights, before.network.base.weights)
        np.testing.assert_array_equal(after.network.components, before.network.components)
        assert after.memory.slots.max() - before.memory.slots.max() == SLOTS
        assert not np.array_equal(after.profile.expected_counts, before.profile.expected_counts)
        assert fresh["held_out"] == about["held_out"]
        assert "carried over" in fresh["refreshed"]["held_out"]
        new, _ = load_model(store.path(f"{young}/1"))
        assert new.network.link_ids[new.link] == young
        assert load_network(store.root / ".networks" / fresh["network"]).link_ids == after.network.link_ids

    def test_experts_are_activated_and_refreshed_and_one_algorithm_follows(self, client, city, worker):
        one, two, young = city.counts
        quick = QUICK | {"lags": 12, "n_neighbors": 8}
        links = run(client, worker, parameters=quick, activate="always")
        assert {link["outcome"] for link in links.values()} == {"activated"}
        figures = links[one]["figures"]
        assert figures["candidate"] == figures["ENSEMBLE"]
        assert {"ENSEMBLE before", "ENSEMBLE with NETWORK", "ENSEMBLE with KR_SML", "NETWORK"} <= set(figures)
        assert "version 1, " in links[one]["reason"]
        assert "; version 2, " in links[one]["reason"]
        assert self.active(client, one) == {"NETWORK": True, "KR_SML": True}
        assert self.active(client, young) == {"NETWORK": True}
        assert self.method(client, one) == self.method(client, young) == "ENSEMBLE"
        decisions = [model["decision"] for model in client.get(f"/v1/links/{one}/models").json()["models"]]
        assert {decision["outcome"] for decision in decisions} == {"activated"}

        # The weights begin with those after the held-out days, and were learnt for all experts.
        slots = client.get(f"/v1/links/{one}/experts").json()["slots"]
        assert len([weight for weight in slots[-1]["weights"].values() if weight > 0]) > 1

        # A refresh of the network model leaves the other expert as it is.
        links = run(client, worker, algorithm="NETWORK", refresh=True, parameters={"days": 28})
        assert set(links) == {one, two, young}
        assert self.active(client, one) == {"NETWORK": True, "KR_SML": True}
        assert self.method(client, one) == "ENSEMBLE"

        # To ask for the same again changes nothing: no aggregate is better by the margin.
        links = run(client, worker, links=[one], parameters=quick)
        assert links[one]["outcome"] == "refused"
        assert "active" in links[one]["figures"]
        assert links[one]["figures"]["active"]["rmse"] == pytest.approx(
            links[one]["figures"]["ENSEMBLE before"]["rmse"]
        )
        assert self.method(client, one) == "ENSEMBLE"

        # To ask for one algorithm serves exactly that.
        run(client, worker, links=[one], algorithm="KR_SML", parameters=quick, activate="always")
        assert self.method(client, one) == "KR_SML"
        assert client.get(f"/v1/links/{one}/models").json()["choice"] is None
        assert self.active(client, one) == {"NETWORK": True, "KR_SML": False}
        models = client.get(f"/v1/links/{one}/models").json()["models"]
        assert [model["algorithm"] for model in models if model["serving"]] == ["KR_SML"]
        refused = queue(client, links=[one], algorithm="NETWORK", refresh=True, status=409)
        assert refused["type"] == "/problems/not-refreshable"
        assert set(run(client, worker, algorithm="NETWORK", refresh=True)) == {two, young}

        # A network model that forecasts alone, because the other one was withdrawn, goes on alone after a refresh.
        path = f"/v1/admin/links/{one}/models/deactivate"
        assert client.post(path, json={"algorithm": "KR_SML"}).status_code == 200
        assert self.method(client, one) == "NETWORK"
        assert set(run(client, worker, algorithm="NETWORK", refresh=True)) == {one, two, young}
        assert self.method(client, one) == "NETWORK"
        assert self.method(client, two) == "ENSEMBLE"

    def test_a_link_whose_experts_are_refused_has_the_aggregate_of_what_it_has(self, client, city, settings):
        worker = Worker(client.app.state.engine, settings.model_copy(update={"retrain_jobs": 1, "retrain_margin": 0.9}))
        one = next(iter(city.counts))
        links = run(client, worker, links=[one], parameters=QUICK | {"lags": 12, "n_neighbors": 8})
        worker.close()
        errors = {method: figures["rmse"] for method, figures in links[one]["figures"].items()}
        assert links[one]["outcome"] == ("refused" if errors["ENSEMBLE before"] <= errors["profile"] else "profile")
        assert links[one]["outcome"] == "refused"  # the day before is known to the aggregate, not to the profile
        assert "not 90.0% below" in links[one]["reason"]
        assert "the aggregate of the experts that the link has forecasts it from now on" in links[one]["reason"]
        assert client.get(f"/v1/links/{one}/models").json()["choice"] == "ensemble"
        assert self.active(client, one) == {}
        [forecast] = client.get(f"/v1/links/{one}/forecast").json()["forecasts"]
        assert (forecast["method"], forecast["model_version"], forecast["degraded_reason"]) == ("ENSEMBLE", None, None)
        [shown] = client.get(f"/v1/forecasts?links={one}").json()["links"]
        assert shown["status"] == "ok"
        weights = client.get(f"/v1/links/{one}/experts").json()["slots"][-1]["weights"]
        assert weights["NETWORK"] == weights["KR_SML"] == 0.0

    @staticmethod
    def active(client, link_id):
        models = client.get(f"/v1/links/{link_id}/models").json()["models"]
        return {one["algorithm"]: one["expert"] for one in models if one["state"] == "active"}

    @staticmethod
    def method(client, link_id):
        [forecast] = client.get(f"/v1/links/{link_id}/forecast").json()["forecasts"]
        return forecast["method"]

    def test_a_cancelled_network_ends_at_once(self, client, city, worker, settings):
        # So many steps that it would take minutes.
        slow = {"held_out_days": 4, "max_iter": 500, "mu": [1e-9, 1e-8, 1e-7, 1e-6, 1e-5]}
        number = queue(client, algorithm="NETWORK", parameters=slow)["run_id"]
        thread = threading.Thread(target=worker.work_once)
        thread.start()
        wait_until(lambda: list(settings.model_store.glob(".training-*/.network-*")))
        assert client.delete(f"/v1/admin/retrain/{number}").status_code == 200
        thread.join(timeout=WAIT_SECONDS)
        assert not thread.is_alive()  # what is under way takes minutes, and is not waited for
        shown = client.get(f"/v1/admin/retrain/{number}").json()
        assert (shown["state"], shown["progress"]["cancelled"]) == ("cancelled", 3)
        assert not list(settings.model_store.glob(".training-*"))


@pytest.fixture
def context(settings: Any) -> Iterator[RunContext]:
    engine, now = open_database(settings.database_url), datetime.now(UTC)
    given = {"algorithm": "KR", "parameters": {}, "activate": "never", "requested_by": "a test", "requested_at": now}
    run = RetrainRun(state="running", worker="me", heartbeat_at=now, cancel_requested=False, **given)
    with writing(engine) as session:
        session.add(run)
    yield RunContext(engine, settings, run, "me", threading.Event())
    engine.dispose()


def detail_of(context: RunContext, address: str, *, known: bool) -> str | None:
    """Connect to an unreachable cluster and return the run's detail afterwards."""
    context.cluster = Cluster(address)
    context.cluster.known = known
    assert connect_to_cluster(context) is None
    with reading(context.engine) as session:
        run = run_with(session, context.run.id)
    assert run is not None
    return run.detail


@on_sqlite
def test_a_host_without_an_address_is_a_missing_cluster_if_it_had_one(context):
    assert detail_of(context, NOWHERE, known=False) is None
    detail = detail_of(context, NOWHERE, known=True)
    assert detail.startswith(f"trained in local processes, without the Dask scheduler {NOWHERE}: ")
    assert "dask-scheduler.invalid has no address" in detail


@on_sqlite
@pytest.mark.journey
def test_a_host_where_nothing_listens_is_named_the_first_time(context):
    address = f"tcp://127.0.0.1:{free_port()}"
    detail = detail_of(context, address, known=False)
    assert detail == f"trained in local processes, without the Dask scheduler {address}: Connection refused"
