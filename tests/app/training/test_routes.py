import threading
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from sqlalchemy import text

from app.core.database import database_now, writing
from app.training import execute_run as execute_run
from app.training.network_stage import NetworkTraining
from app.training.queries import claim_run, renew_lease, waiting_links
from app.training.run_context import RunContext
from app.training.schemas import ContextPart
from app.training.train_run import prepare_links
from app.worker.worker import Worker
from model.network_model.context import ContextParts
from tests.support.city import PLAN
from tests.support.databases import on_postgresql, on_sqlite

KR = {"lags": 12, "n_neighbors": 8, "held_out_days": 4}
QUICK = {"lags": 12, "n_neighbors": 8, "max_iter": 3, "held_out_days": 4, "mu": [1e-3]}
LEARNT = {"algorithm": "KR_SML", "parameters": QUICK}  # takes longer than KR, which learns no metric


def retrain(client, status=202, **body):
    answer = client.post("/v1/admin/retrain", json={"links": "all", "algorithm": "KR", "parameters": KR} | body)
    assert answer.status_code == status, answer.text
    return answer


def queue(client, status=202, **body):
    answer = client.post("/v1/admin/retrain", json={"links": "all", **body})
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.fixture
def open_worker(client, settings):
    """Open workers in this process; tests of the process itself are among the journeys."""
    opened = []

    def open_one(**changed):
        changed = {"retrain_jobs": 1} | changed
        opened.append(Worker(client.app.state.engine, settings.model_copy(update=changed)))
        return opened[-1]

    yield open_one
    for worker in opened:
        worker.close()


@pytest.fixture
def worker(open_worker):
    return open_worker()


class TestRetrain:
    def test_a_run_is_queued_with_its_address_and_its_links(self, client, city):
        answer = retrain(client, links=sorted(city.counts)[:2])
        run = answer.json()
        assert answer.headers["location"] == f"/v1/admin/retrain/{run['run_id']}"
        assert (run["state"], run["progress"]["waiting"]) == ("queued", 2)
        assert [one["link_id"] for one in run["links"]] == sorted(city.counts)[:2]
        assert client.get(answer.headers["location"]).json()["run_id"] == run["run_id"]
        assert [one["run_id"] for one in client.get("/v1/admin/retrain").json()["runs"]] == [run["run_id"]]

    def test_a_link_in_a_run_is_reported_never_raced(self, client, city):
        first, *others = sorted(city.counts)
        one = retrain(client, links=[first]).json()
        two = retrain(client).json()
        assert two["already_running"] == {first: one["run_id"]}
        assert [link["link_id"] for link in two["links"]] == others
        refused = retrain(client, 409).json()
        assert f"run {one['run_id']}" in refused["detail"]

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ({"links": ["nowhere"]}, 404),
            ({"links": "some"}, 422),
            ({"algorithm": "LSTM"}, 422),
            ({"activate": "perhaps"}, 422),
            ({"algorithm": "NETWORK", "refresh": 1}, 422),
            ({"refresh": 0}, 422),
            ({"parameters": {"lags": 0}}, 422),
            ({"parameters": {"speed": 1}}, 422),
        ],
    )
    @on_sqlite
    def test_what_cannot_be_is_refused(self, client, city, body, status):
        retrain(client, status, **body)

    def test_of_requests_at_once_one_gets_each_link_and_the_others_a_conflict(self, client, city):
        start, answers = threading.Barrier(6), []

        def ask() -> None:
            start.wait()
            answers.append(client.post("/v1/admin/retrain", json={"links": "all", "parameters": KR}))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answer.status_code for answer in answers) == [202, *[409] * 5]

    def test_a_run_over_no_links_is_refused(self, client):
        retrain(client, 409)

    def test_cancelling_a_queued_run_frees_its_links(self, client, city):
        run = retrain(client).json()["run_id"]
        assert client.delete(f"/v1/admin/retrain/{run}").json()["state"] == "cancelled"
        assert retrain(client).json()["already_running"] == {}
        assert client.delete(f"/v1/admin/retrain/{run}").status_code == 409
        assert client.delete("/v1/admin/retrain/999").status_code == 404


class TestNetworkRequests:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"algorithm": "NETWORK", "parameters": {"lags": 12}}, "parameters.lags='12' is refused"),
            ({"algorithm": "NETWORK", "parameters": {"bandwidth": 2.0}}, "parameters.bandwidth='2.0' is refused"),
            (
                {"algorithm": "KR", "parameters": {"context": ["lags"]}},
                "it must be left out: only NETWORK and best have it",
            ),
            ({"algorithm": "best", "parameters": {"context": ["rain"]}}, "parameters.context.0='rain' is refused"),
            ({"algorithm": "best", "parameters": {"context": []}}, "parameters.context='[]' is refused"),
            ({"refresh": True}, "refresh='true' is refused; it needs the algorithm NETWORK"),
            ({"algorithm": "best", "refresh": True}, "refresh='true' is refused"),
            (
                {"algorithm": "NETWORK", "refresh": True, "parameters": {"mu": [1.0]}},
                "parameters.mu='[1.0]' is refused; it must be left out: a refresh learns nothing anew",
            ),
        ],
    )
    @on_sqlite
    def test_what_does_not_concern_a_network_is_refused_by_name(self, client, put_link, body, message):
        put_link("A")
        assert message in queue(client, 422, **body)["detail"]

    def test_a_refresh_needs_a_network_model(self, client, put_link):
        put_link("A")
        assert "there is no active network model" in queue(client, 409, algorithm="NETWORK", refresh=True)["detail"]

    def test_best_takes_the_parameters_of_both(self, client, put_link):
        put_link("A")
        given = {"lags": 12, "held_out_days": 4, "context": list(get_args(ContextPart))}
        assert given["context"] == ContextParts().names
        assert queue(client, algorithm="best", parameters=given)["parameters"] == given


@pytest.mark.journey
class TestWorker:
    def test_trains_compares_and_activates(self, client, city, worker, settings):
        run = retrain(client, activate="always", **LEARNT).json()["run_id"]
        assert worker.work_once()
        shown = client.get(f"/v1/admin/retrain/{run}").json()
        assert (shown["state"], shown["progress"]["done"]) == ("succeeded", len(city.counts))
        for link in shown["links"]:
            assert (link["outcome"], link["version"]) == ("activated", 2)
            assert set(link["figures"]) == {"candidate", "active", "KR", "profile", "last_week"}
            forecast = client.get(f"/v1/links/{link['link_id']}/forecast").json()["forecasts"][0]
            assert forecast["model_version"] == 2
            history = client.get(f"/v1/admin/links/{link['link_id']}/activations").json()["activations"]
            assert [(one["version"], one["previous_version"]) for one in history] == [(2, 1), (1, None)]
            assert history[0]["activated_by"].startswith(f"run {run}")
        assert not worker.work_once()
        assert not list(settings.model_store.glob(".training-*"))

    @on_sqlite
    def test_the_same_counts_and_plan_are_not_better_and_are_refused(self, client, city, worker):
        run = retrain(client, **LEARNT).json()["run_id"]
        worker.work_once()
        for link in client.get(f"/v1/admin/retrain/{run}").json()["links"]:
            assert link["outcome"] == "refused"
            assert link["reason"]
            shelved = client.get(f"/v1/links/{link['link_id']}/models/{link['version']}").json()
            assert shelved["decision"] == {"run_id": run, "outcome": "refused", "reason": link["reason"]}
            assert shelved["held_out"].keys() >= {"candidate", "active", "KR", "profile"}
            assert client.get(f"/v1/links/{link['link_id']}/forecast").json()["forecasts"][0]["model_version"] == 1

    @on_sqlite
    def test_a_link_that_cannot_be_trained_fails_alone(self, client, city, worker, put_link):
        put_link("new")
        run = retrain(client).json()["run_id"]
        worker.work_once()
        shown = client.get(f"/v1/admin/retrain/{run}").json()
        assert shown["state"] == "succeeded"
        failed = [link for link in shown["links"] if link["state"] == "failed"]
        assert [link["link_id"] for link in failed] == ["new"]
        assert "counts" in failed[0]["reason"]

    def test_a_lost_run_is_claimed_and_only_what_is_left_is_trained(self, client, city, worker, settings):
        run = retrain(client, activate="never").json()["run_id"]
        engine = client.app.state.engine
        long_ago = datetime.now(UTC) - timedelta(minutes=1)
        with writing(engine) as session:
            assert claim_run(session, "dead", long_ago).id == run
        assert worker.work_once()
        assert client.get(f"/v1/admin/retrain/{run}").json()["state"] == "succeeded"

    def test_a_run_whose_worker_is_alive_is_not_taken(self, client, city, worker):
        retrain(client)
        with writing(client.app.state.engine) as session:
            claim_run(session, "alive", datetime.now(UTC))
        assert not worker.work_once()

    @on_postgresql
    def test_a_host_whose_clock_is_ahead_takes_no_run_of_a_live_worker(self, client, city, worker, monkeypatch):
        class Ahead(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + timedelta(hours=1)

        run = retrain(client).json()["run_id"]
        engine = client.app.state.engine
        with writing(engine) as session:
            claim_run(session, "alive", database_now(session))
        monkeypatch.setattr("app.worker.worker.datetime", Ahead)
        monkeypatch.setattr("app.core.database.datetime", Ahead)
        assert not worker.work_once()
        monkeypatch.undo()
        with writing(engine) as session:
            assert renew_lease(session, run, "alive", database_now(session))

    @pytest.mark.journey
    @on_sqlite
    def test_an_unreachable_store_is_named_with_what_was_not_registered(
        self, client, city, open_worker, monkeypatch, tmp_path
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        worker = open_worker(model_store="s3://nowhere", model_cache=tmp_path / "cache")
        asked = {"links": sorted(city.counts)[:1]}
        run = retrain(client, **asked).json()["run_id"]
        assert worker.work_once()
        shown = client.get(f"/v1/admin/retrain/{run}").json()
        reason = "the model store s3://nowhere is out of reach: EndpointConnectionError"
        assert (shown["state"], shown["detail"], shown["links"][0]["reason"]) == ("failed", reason, reason)
        with writing(client.app.state.engine) as session:
            session.execute(text("DELETE FROM trained_models"))  # with nothing to compare with, it is trained
        run = retrain(client, **asked).json()["run_id"]
        assert worker.work_once()
        [link] = client.get(f"/v1/admin/retrain/{run}").json()["links"]
        assert link["state"] == "failed"
        assert link["reason"] == f"it was trained and could not be registered: {reason}"
        assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []

    def test_of_workers_that_claim_at_once_one_gets_the_run(self, client, city):
        retrain(client)
        engine, got = client.app.state.engine, []

        def claim(name: str) -> None:
            with writing(engine) as session:
                got.append(claim_run(session, name, datetime.now(UTC)))

        threads = [threading.Thread(target=claim, args=(f"w{i}",)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(run is not None for run in got) == 1

    @on_sqlite
    def test_a_stopped_worker_releases_its_run_to_the_next(self, client, city, worker, open_worker, monkeypatch):
        run = retrain(client, activate="never").json()["run_id"]
        register = execute_run.register_outcome

        def register_and_stop(*given):
            register(*given)
            worker.stop()

        monkeypatch.setattr(execute_run, "register_outcome", register_and_stop)
        assert worker.work_once()
        shown = client.get(f"/v1/admin/retrain/{run}").json()
        assert (shown["state"], shown["progress"]["done"]) == ("queued", 1)
        assert shown["progress"]["waiting"] == len(city.counts) - 1
        monkeypatch.undo()
        assert open_worker().work_once()
        shown = client.get(f"/v1/admin/retrain/{run}").json()
        assert (shown["state"], {link["version"] for link in shown["links"]}) == ("succeeded", {2})

    def test_a_worker_that_lost_its_run_opens_no_settled_link_again(self, client, city, worker, settings):
        run = retrain(client, activate="never").json()["run_id"]
        engine = client.app.state.engine
        with writing(engine) as session:
            lost = claim_run(session, "paused", datetime.now(UTC) - timedelta(minutes=1))
            links = waiting_links(session, run)
        assert worker.work_once()
        context = RunContext(engine, settings, lost, "paused", threading.Event())
        assert not list(prepare_links(context, NetworkTraining(), links, {}))
        assert client.get(f"/v1/admin/retrain/{run}").json()["progress"]["done"] == len(city.counts)

    def test_a_link_deleted_while_it_trains_harms_no_other(self, client, city, worker, monkeypatch):
        gone, *others = sorted(city.counts)
        run = retrain(client, activate="never").json()["run_id"]
        register = execute_run.register_outcome

        def delete_and_register(*given):
            client.delete(f"/v1/links/{gone}", params={"force": True})
            register(*given)

        monkeypatch.setattr(execute_run, "register_outcome", delete_and_register)
        assert worker.work_once()
        shown = client.get(f"/v1/admin/retrain/{run}").json()
        assert shown["state"] == "succeeded"
        assert [link["link_id"] for link in shown["links"]] == others

    @on_sqlite
    def test_what_cannot_be_registered_is_its_links_failure_alone(self, client, city, worker, monkeypatch):
        first = sorted(city.counts)[0]
        register = execute_run.register_model

        def full_disk(session, store, link, folder):
            if link.link_id == first:
                raise OSError(28, "No space left on device")
            return register(session, store, link, folder)

        monkeypatch.setattr(execute_run, "register_model", full_disk)
        run = retrain(client, activate="never").json()["run_id"]
        assert worker.work_once()
        shown = client.get(f"/v1/admin/retrain/{run}").json()
        assert (shown["state"], shown["progress"]["failed"]) == ("succeeded", 1)
        assert "No space left" in next(link["reason"] for link in shown["links"] if link["link_id"] == first)


class TestActivate:
    def test_activating_the_active_version_works_without_history(self, client, city):
        link_id = sorted(city.counts)[0]
        with writing(client.app.state.engine) as session:
            session.execute(text("DELETE FROM activations"))
        answer = client.post(f"/v1/admin/links/{link_id}/models/1/activate")
        assert answer.status_code == 200
        assert answer.json()["version"] == 1

    def test_rolls_forward_and_back_with_history(self, client, city, worker):
        link_id = sorted(city.counts)[0]
        retrain(client, links=[link_id], activate="never")
        worker.work_once()
        path = f"/v1/admin/links/{link_id}/models"
        done = client.post(f"{path}/2/activate", json={"reason": "a try"}).json()
        assert (done["version"], done["previous_version"], done["reason"]) == (2, 1, "a try")
        assert done["activated_by"] == "environment"
        assert client.get(f"/v1/links/{link_id}/forecast").json()["forecasts"][0]["model_version"] == 2
        assert client.post(f"{path}/1/activate").json()["version"] == 1
        assert client.get(f"/v1/links/{link_id}/forecast").json()["forecasts"][0]["model_version"] == 1
        assert client.post(f"{path}/9/activate").status_code == 404
        assert client.post("/v1/admin/links/nowhere/models/1/activate").status_code == 404


def test_the_quick_plan_is_the_citys_own():
    assert QUICK["lags"] == PLAN.lags
