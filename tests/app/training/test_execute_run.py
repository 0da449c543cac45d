"""A profile that won on held-out days is the choice of a run, and no alarm."""

import threading

import pytest

from app.core.database import database_now, writing
from app.links.queries import link_or_404
from app.links.tables import folder_name
from app.registry.tables import ModelVersion
from app.training.execute_run import register_outcome
from app.training.request import refreshable, request_run
from app.training.run_context import RunContext
from app.training.tables import RetrainRun
from app.training.train_links import LinkOutcome
from model.artifacts.link_models import load_model
from model.network_model.network import ALGORITHM as NETWORK
from tests.support.city import SLOTS, TRAINED_DAYS, post, put_city, rows


@pytest.fixture
def link_id(client, trained):
    """Store a link with fifteen days of counts and no model."""
    city, _ = trained
    put_city(client, city)
    first = sorted(city.counts)[0]
    post(client, rows(city, 0, TRAINED_DAYS * SLOTS, [first]))
    return first


@pytest.fixture
def settled(client, settings, trained, link_id):
    """Return a function that decides on the link in a run, with given held-out errors of candidate and profile."""

    def settle_as(candidate: float, profile: float, algorithm: str = "best") -> dict:
        engine, folder = client.app.state.engine, trained[1]
        with writing(engine) as session:
            link = link_or_404(session, link_id)
            run, _ = request_run(session, [link], algorithm, {}, activate="if_better", requested_by="test")
            run.state, run.worker, run.heartbeat_at = "running", "test", database_now(session)
            number = run.id
        _, about = load_model(folder / folder_name(link_id))
        errors = {"candidate": candidate, "profile": profile}
        about["held_out"] = {method: {"rmse": {"value": error, "n_used": 9}} for method, error in errors.items()}
        context = RunContext(engine, settings, run, "test", threading.Event())
        register_outcome(context, link, LinkOutcome(link_id, "trained", 1.0, about=about), folder)
        with writing(engine) as session:
            session.get_one(RetrainRun, number).state = "succeeded"
        return client.get(f"/v1/admin/retrain/{number}").json()["links"][0]

    return settle_as


def forecast(client, link_id: str) -> dict:
    (one,) = client.get(f"/v1/links/{link_id}/forecast").json()["forecasts"]
    return one


def status(client, link_id: str) -> str:
    links = client.get(f"/v1/forecasts?links={link_id}").json()["links"]
    return links[0]["status"]


def degraded(client) -> float:
    text = client.get("/metrics").text
    (line,) = [
        one for one in text.splitlines() if one.startswith('flowcast_forecasts_degraded_total{reason="no_model"}')
    ]
    return float(line.rpartition(" ")[2])


def test_a_profile_that_won_is_recorded_as_the_choice_and_is_no_alarm(client, trained, link_id, settled):
    assert forecast(client, link_id)["degraded_reason"] == "the link has no trained model"
    assert status(client, link_id) == "degraded"
    assert client.get(f"/v1/links/{link_id}/models").json()["choice"] is None

    tag = {"If-None-Match": client.get("/v1/forecasts").headers["etag"]}
    link = settled(candidate=10.0, profile=9.0)
    assert (link["outcome"], link["version"]) == ("profile", 1)
    assert client.get("/v1/forecasts", headers=tag).status_code == 200
    assert "not 0.5% below that of the profile" in link["reason"]
    shelf = client.get(f"/v1/links/{link_id}/models").json()
    assert shelf["choice"] == "profile"
    assert [(one["state"], one["decision"]["outcome"]) for one in shelf["models"]] == [("candidate", "refused")]
    one = forecast(client, link_id)  # also the one that was issued before the run
    assert (one["method"], one["degraded_reason"], one["model_version"]) == ("profile", None, None)
    assert status(client, link_id) == "ok"

    before = degraded(client)
    city, n = trained[0], TRAINED_DAYS * SLOTS
    post(client, rows(city, n, n + 1, [link_id]))
    assert forecast(client, link_id)["degraded_reason"] is None
    assert degraded(client) == before
    history = client.get(f"/v1/links/{link_id}/forecasts?horizon=1").json()["forecasts"]
    assert history[-1]["degraded_reason"] is None


def test_a_model_that_is_activated_afterwards_supersedes_the_choice(client, settings, link_id, settled):
    settled(candidate=10.0, profile=9.0)
    assert client.post(f"/v1/admin/links/{link_id}/models/1/activate").status_code == 200
    assert client.get(f"/v1/links/{link_id}/models").json()["choice"] is None
    assert (forecast(client, link_id)["method"], status(client, link_id)) == ("KR_SML", "ok")


def test_a_better_candidate_is_activated_and_nothing_else_is_recorded(client, link_id, settled):
    assert settled(candidate=8.0, profile=9.0)["outcome"] == "activated"
    assert client.get(f"/v1/links/{link_id}/models").json()["choice"] is None


def test_a_run_of_another_algorithm_refuses_as_before(client, link_id, settled):
    assert settled(candidate=10.0, profile=9.0, algorithm="KR_SML")["outcome"] == "refused"
    assert forecast(client, link_id)["degraded_reason"] == "the link has no trained model"


def test_a_link_that_is_served_by_a_model_keeps_it(client, settings, link_id, settled):
    settled(candidate=8.0, profile=9.0)
    assert settled(candidate=10.0, profile=9.0)["outcome"] == "refused"
    assert client.get(f"/v1/links/{link_id}/models").json()["choice"] is None
    assert forecast(client, link_id)["method"] == "KR_SML"


def test_a_chosen_profile_without_enough_counts_is_degraded(client, trained, settled, link_id):
    settled(candidate=10.0, profile=9.0)
    city = trained[0]
    late = [
        {"link_id": link_id, "slot_start": city.grid.start(city.first_slot + 45 * SLOTS).isoformat(), "count": 7},
    ]
    post(client, late)
    one = forecast(client, link_id)
    assert (one["method"], one["degraded_reason"]) == (
        "last_count",
        "there is no profile: its latest weeks have too few counts",
    )


def test_a_refresh_gives_no_model_to_a_link_whose_profile_won(client, trained, settled, link_id):
    settled(candidate=10.0, profile=9.0)
    engine, city = client.app.state.engine, trained[0]
    other = sorted(city.counts)[1]
    with writing(engine) as session:
        links = [link_or_404(session, one) for one in (link_id, other)]
        now = database_now(session)
        facts = {"algorithm": NETWORK, "folder": "x", "fingerprint": "x", "rank": 1, "about": {}, "created_at": now}
        span = {"trained_from": now, "trained_to": now}
        session.add(ModelVersion(link_key=links[1].link_key, version=1, state="active", **facts, **span))
        session.flush()
        assert [link.link_id for link in refreshable(session, links)] == [other]
        assert [link.link_id for link in refreshable(session, links, named=True)] == [link_id, other]
