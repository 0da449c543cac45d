"""Links that are forecast by the aggregate of their experts."""

import re
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, text
from starlette.testclient import TestClient

from app.core.database import reading, writing
from app.forecasts.compute import Forecaster
from app.forecasts.ensemble import CATCH_UP
from app.forecasts.rebuild_weights import rebuild_weights
from app.links.queries import links_by_id
from app.main import create_app
from app.registry.ensembles import AGGREGATION
from app.registry.loaded_models import LoadedModels
from app.registry.queries import find_version
from app.registry.store import ModelStore
from app.registry.tables import Ensemble
from app.settings import Settings
from model.aggregation.online import Regrets
from model.aggregation.state import Aggregation, unpack
from tests.support.city import SLOTS, post, rows, slot_start
from tests.support.databases import on_sqlite
from tests.support.experts import EXPERTS, NOW
from tests.support.services import ADMIN_KEY
from tests.support.waiting import wait_until

pytestmark = pytest.mark.journey

LINK = "Ba"


@pytest.fixture
def database_url(database_url, expert_databases, new_database, tmp_path):
    """Return the address of a database with the city, whose links are forecast by ensembles."""
    kind = database_url.partition(":")[0]
    return str(new_database(kind, expert_databases.copied(kind, tmp_path / "models")))


@pytest.fixture
def city(trained_experts):
    return trained_experts.city


def forecast(client: TestClient, link_id: str = LINK, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/links/{link_id}/forecast", params={"horizon": 4, **query})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def nearest(client: TestClient, link_id: str = LINK) -> dict[str, Any]:
    return dict(forecast(client, link_id)["forecasts"][0])


def experts(client: TestClient, link_id: str = LINK, **query: Any) -> list[dict[str, Any]]:
    answer = client.get(f"/v1/links/{link_id}/experts", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["slots"])


def post_slots(client: TestClient, city: Any, first: int, last: int, **options: Any) -> None:
    """Post the counts of all links slot by slot."""
    for i in range(first, last):
        post(client, rows(city, i, i + 1, **options))


def stored_states(client: TestClient) -> dict[int, Any]:
    with reading(client.app.state.engine) as session:  # type: ignore[attr-defined]
        return {row.link_key: (row.as_of, row.state) for row in session.scalars(select(Ensemble))}


def assert_same_states(one: dict[int, Any], other: dict[int, Any], **tolerance: float) -> None:
    assert one.keys() == other.keys()
    for key, (as_of, state) in one.items():
        assert other[key][0] == as_of
        here, there = unpack([state]), unpack([other[key][1]])
        for name in ("experts", "expected", "below", "above"):
            np.testing.assert_allclose(getattr(here, name), getattr(there, name), err_msg=name, **tolerance)
        np.testing.assert_allclose(here.factors.factors, there.factors.factors, **tolerance)
        for name in ("cumulated", "squares", "largest"):
            np.testing.assert_allclose(getattr(here.regrets, name), getattr(there.regrets, name), **tolerance)


class TestServed:
    def test_by_all_experts_with_the_version_of_the_heaviest(self, client, city):
        post_slots(client, city, NOW, NOW + 3)
        served, (*_, last) = forecast(client)["forecasts"], experts(client)
        assert {one["method"] for one in served} == {"ENSEMBLE"}
        assert {one["degraded_reason"] for one in served} == {None}
        assert list(last["weights"]) == list(EXPERTS)
        assert sum(last["weights"].values()) == pytest.approx(1.0, abs=1e-5)
        mean = sum(last["weights"][name] * last["expected_counts"][name] for name in EXPERTS)
        assert served[0]["expected_count"] == last["expected_count"] == pytest.approx(mean, abs=0.01)
        versions = {"NETWORK": 1, "KR_SML": 2} if last["weights"]["NETWORK"] else {}
        heaviest = max(last["weights"], key=lambda name: last["weights"][name])
        assert served[0]["model_version"] == versions.get(heaviest)
        assert served[0]["lower"] < served[0]["expected_count"] < served[0]["upper"]
        assert client.get(f"/v1/links/{LINK}/models").json()["choice"] == "ensemble"

    def test_weights_go_on_from_those_of_training_by_the_errors_that_were_made(self, client, city, trained_experts):
        n = 30
        post_slots(client, city, NOW, NOW + n)
        begin = trained_experts.outcomes[LINK].about[AGGREGATION]
        regrets = Aggregation.from_json(begin).regrets
        regrets = Regrets(*(getattr(regrets, name)[0] for name in ("cumulated", "squares", "largest")))
        slots = experts(client)
        assert len(slots) == n + 1
        for slot in slots:
            expected = np.array([slot["expected_counts"][name] for name in EXPERTS])
            weights = regrets.aggregate(expected).weights
            np.testing.assert_allclose(weights, list(slot["weights"].values()), atol=2e-3)
            if slot["count"] is not None:
                regrets = regrets.after(expected, slot["count"])

    def test_an_explanation_lists_the_experts(self, client, city):
        post_slots(client, city, NOW, NOW + 8)
        served = forecast(client, explain=True)
        listed, (*past, last) = served["explanation"]["experts"], experts(client)
        weights = [one["weight"] for one in listed]
        assert weights == sorted(weights, reverse=True)
        assert {one["name"]: one["weight"] for one in listed} == last["weights"]
        assert {one["name"]: one["expected_count"] for one in listed} == last["expected_counts"]
        assert {one["name"]: one["model_version"] for one in listed if one["model_version"]} == {
            "NETWORK": 1,
            "KR_SML": 2,
        }
        for one in listed:
            errors = [slot["expected_counts"][one["name"]] - slot["count"] for slot in past]
            assert one["recent_slots"] == len(errors) == 8
            assert one["recent_rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))), abs=2e-3)
        explained = {one["name"]: one["explanation"] for one in listed}
        assert explained["profile"] is explained["last_count"] is None
        assert 0.5 < sum(one["weight"] for one in explained["KR_SML"]["neighbours"]) <= 1.0
        assert explained["NETWORK"]["context"]
        first = next(one["explanation"] for one in listed if one["explanation"])
        assert served["explanation"]["rank"] == first["rank"]

    def test_weights_are_listed_a_page_at_a_time_and_as_csv(self, client, city):
        post_slots(client, city, NOW, NOW + 5)
        answer = client.get(f"/v1/links/{LINK}/experts", params={"limit": 4, "horizon": 2})
        page = answer.json()
        assert len(page["slots"]) == 4
        rest = client.get(
            f"/v1/links/{LINK}/experts", params={"limit": 4, "horizon": 2, "cursor": page["next_cursor"]}
        ).json()
        assert rest["next_cursor"] is None
        every = page["slots"] + rest["slots"]
        assert [one["slot_start"] for one in every] == [slot_start(city, NOW + i + 1) for i in range(6)]
        lines = client.get(f"/v1/links/{LINK}/experts", headers={"Accept": "text/csv"}).text.splitlines()
        assert len(lines) == 7
        assert lines[0].split(",")[5:7] == ["weight_NETWORK", "weight_KR_SML"]
        assert client.get("/v1/links/nowhere/experts").status_code == 404

    def test_any_level_and_a_day_ahead(self, client, city):
        post_slots(client, city, NOW, NOW + 2)
        items = forecast(client, horizon=SLOTS, level="0.5,0.8,0.95")["forecasts"]
        assert len(items) == SLOTS
        for item in items:
            widths = [one["upper"] - one["lower"] for one in item["intervals"]]
            assert widths == sorted(widths)
            assert item["method"] == "ENSEMBLE"
        last = [one["expected_count"] for one in items][-20:]
        profile = [one["expected_counts"]["profile"] for one in experts(client)]
        assert np.all(np.isfinite(last))
        assert len(profile) == 3

    @on_sqlite
    def test_as_of_a_past_slot_nothing_is_stored(self, client, city):
        before = stored_states(client)
        past = forecast(client, as_of=slot_start(city, NOW - 5))
        assert {one["method"] for one in past["forecasts"]} == {"ENSEMBLE"}
        assert stored_states(client) == before


class TestState:
    def test_a_repeated_batch_and_late_and_corrected_counts_change_nothing(self, client, city):
        post_slots(client, city, NOW, NOW + 3)
        before = stored_states(client)
        served = forecast(client)
        post(client, rows(city, NOW + 2, NOW + 3))
        late = [{**one, "count": one["count"] + 500} for one in rows(city, NOW - 3, NOW + 2)]
        assert post(client, late)["replaced"] == len(late)
        assert stored_states(client) == before
        assert [one["expected_count"] for one in forecast(client)["forecasts"]] == [
            one["expected_count"] for one in served["forecasts"]
        ]

    def test_what_a_crash_left_out_is_made_up_for_with_the_same_states(
        self, client, city, settings, new_database, expert_databases, tmp_path
    ):
        def crash(_: Any) -> int:
            raise RuntimeError("the process ends after the counts were committed")

        client.app.state.ingest_context = client.app.state.ingest_context._replace(issue_forecasts=crash)
        before = stored_states(client)
        post_slots(client, city, NOW, NOW + 4)
        assert stored_states(client) == before
        kind = "sqlite" if str(settings.database_url).startswith("sqlite") else "postgresql"
        url = str(new_database(kind, expert_databases.copied(kind, tmp_path / "others")))
        other_settings = Settings(**settings.model_dump() | {"database_url": url, "model_store": tmp_path / "others"})
        with TestClient(create_app(other_settings), headers={"X-API-Key": ADMIN_KEY}) as other:
            post_slots(other, city, NOW, NOW + 4)
            expected, of_others = stored_states(other), nearest(other)
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as again:
            one = nearest(again)
            for link_id in city.counts:
                nearest(again, link_id)
            states = stored_states(again)
        assert states != before
        assert one["expected_count"] == of_others["expected_count"]
        assert_same_states(states, expected, rtol=1e-9)

    def test_after_a_long_silence_it_goes_on_from_the_latest_slots(self, client, city):
        post_slots(client, city, NOW, NOW + 1)
        n = CATCH_UP + 6
        post(client, rows(city, NOW + 1, NOW + 1 + n))  # all at once
        one = nearest(client)
        assert (one["method"], one["as_of_slot"]) == ("ENSEMBLE", slot_start(city, NOW + n))
        states = stored_states(client)
        assert {as_of for as_of, _ in states.values()} == {(city.first_slot + NOW + n) * 900}
        post_slots(client, city, NOW + n + 1, NOW + n + 3)
        assert nearest(client)["as_of_slot"] == slot_start(city, NOW + n + 2)

    def test_all_processes_serve_the_same_and_go_on_from_one_state(self, client, city, settings):
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as other:
            for i in range(NOW, NOW + 6):
                writer, reader = (client, other) if i % 2 else (other, client)
                post(writer, rows(city, i, i + 1))
                here = forecast(writer)["forecasts"]
                wait_until(lambda here=here, reader=reader: forecast(reader)["forecasts"] == here)
            assert len(experts(client)) == 7

    def test_two_processes_that_compute_at_once_store_one_state(self, client, city, settings):
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as other:
            post(client, rows(city, NOW, NOW + 1))
            links = links_of(client, [LINK])
            stale = [one.app.state.forecast_cache for one in (client, other)]
            with writing(client.app.state.engine) as session:
                session.execute(text("UPDATE ensembles SET revision = revision + 1"))  # as another process does
                session.execute(text("DELETE FROM forecasts"))
            issued = [cache.issue(links) for cache in stale]
            states = stored_states(client)
            assert nearest(client)["expected_count"] == nearest(other)["expected_count"]
            assert stored_states(client) == states
            assert issued is not None

    def test_the_command_finds_the_same_weights_again(self, client, city, settings):
        post_slots(client, city, NOW, NOW + 20)
        before = stored_states(client)
        with writing(client.app.state.engine) as session:
            session.execute(text("UPDATE ensembles SET state = start"))
        links = links_of(client, list(city.counts))
        forecaster = Forecaster(LoadedModels(ModelStore(settings.model_store), most=100))
        assert rebuild_weights(client.app.state.engine, forecaster, links) == set(city.counts)
        assert_same_states(stored_states(client), before, rtol=1e-6)
        post_slots(client, city, NOW + 20, NOW + 21)
        assert nearest(client)["method"] == "ENSEMBLE"

    @on_sqlite
    def test_deleted_counts_are_forecast_around(self, client, city):
        post_slots(client, city, NOW, NOW + 4)
        span = {"from": slot_start(city, NOW + 2), "to": slot_start(city, NOW + 4), "reason": "roadworks"}
        answer = client.delete(f"/v1/links/{LINK}/counts", params=span)
        assert answer.status_code == 200, answer.text
        one = nearest(client)
        assert (one["method"], one["as_of_slot"]) == ("ENSEMBLE", slot_start(city, NOW + 1))
        post_slots(client, city, NOW + 2, NOW + 6, link_ids=[LINK])
        assert nearest(client)["as_of_slot"] == slot_start(city, NOW + 5)

    @on_sqlite
    def test_a_wrong_count_of_the_future_that_is_deleted_leaves_nothing_behind(self, client, city):
        post_slots(client, city, NOW, NOW + 2)
        post(client, rows(city, NOW + 60, NOW + 61, [LINK]))
        key = links_of(client, [LINK])[0].link_key
        regrets = unpack([stored_states(client)[key][1]]).regrets.cumulated
        span = {"from": slot_start(city, NOW + 60), "to": slot_start(city, NOW + 61), "reason": "a wrong year"}
        assert client.delete(f"/v1/links/{LINK}/counts", params=span).status_code == 200
        assert nearest(client)["as_of_slot"] == slot_start(city, NOW + 1)
        as_of, state = stored_states(client)[key]
        assert as_of == (city.first_slot + NOW + 1) * 900
        np.testing.assert_array_equal(unpack([state]).regrets.cumulated, regrets)
        post_slots(client, city, NOW + 2, NOW + 6)
        as_of, state = stored_states(client)[key]
        assert as_of == (city.first_slot + NOW + 5) * 900
        assert (unpack([state]).regrets.cumulated != regrets).any()

    def test_what_another_process_issued_first_has_its_own_levels(self, client, city, settings):
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as other:
            post_slots(client, city, NOW, NOW + 12)
            links = links_of(client, list(city.counts))
            client.app.state.forecast_cache.issue(links)  # once more, for the same slot
            other.app.state.forecast_cache.issue(links)
            here, there = (forecast(one, level="0.5,0.99")["forecasts"] for one in (client, other))
            assert [one["intervals"] for one in here] == [one["intervals"] for one in there]


def links_of(client: TestClient, link_ids: list[str]) -> list[Any]:
    with reading(client.app.state.engine) as session:  # type: ignore[attr-defined]
        return list(links_by_id(session, link_ids).values())


class TestMissingExperts:
    def test_a_damaged_model_leaves_the_others(self, settings, city):
        store = ModelStore(settings.model_store)
        shutil.rmtree(store.path(f"{LINK}/2"))
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as client:
            post_slots(client, city, NOW, NOW + 2)
            one, (*_, last) = nearest(client), experts(client)
            assert one["method"] == "ENSEMBLE"
            assert one["degraded_reason"].startswith("KR_SML is left out: the artifact of version 2 is damaged")
            assert last["expected_counts"]["KR_SML"] is None
            assert last["weights"]["KR_SML"] == 0.0
            assert sum(last["weights"].values()) == pytest.approx(1.0, abs=1e-5)
            others = [nearest(client, link_id) for link_id in city.counts if link_id != LINK]
            assert {other["degraded_reason"] for other in others} == {None}

    def test_gaps_leave_out_the_experts_that_need_the_counts(self, client, city):
        post(client, rows(city, NOW + 10, NOW + 11))  # the ten slots before are missing
        one, (*_, last) = nearest(client), experts(client)
        assert one["method"] == "ENSEMBLE"
        assert re.fullmatch(
            "NETWORK is left out: .* lags are missing.*; KR_SML is left out: .*", one["degraded_reason"]
        )
        assert last["expected_counts"]["KR_SML"] is None
        assert last["expected_counts"]["last_count"] is not None

    @on_sqlite
    def test_a_link_that_falls_silent_has_its_profile(self, client, city):
        others = [link_id for link_id in city.counts if link_id != LINK]
        post(client, rows(city, NOW, NOW + 20, others))
        one = nearest(client)
        assert one["method"] == "profile"
        assert "no count has come for more than" in one["degraded_reason"]

    def test_an_outage_of_one_slot_is_learnt_around(self, client, city):
        post_slots(client, city, NOW, NOW + 2)
        post_slots(client, city, NOW + 3, NOW + 5)
        one = nearest(client)
        assert (one["method"], one["as_of_slot"]) == ("ENSEMBLE", slot_start(city, NOW + 4))
        forecast_slots = [slot["slot_start"] for slot in experts(client)]
        assert slot_start(city, NOW + 3) not in forecast_slots  # nothing was issued from the missing slot

    def test_weights_are_not_computed_again_without_a_model(self, client, city, settings):
        post_slots(client, city, NOW, NOW + 4)
        before = stored_states(client)
        shutil.rmtree(ModelStore(settings.model_store).path(f"{LINK}/2"))
        links = links_of(client, list(city.counts))
        forecaster = Forecaster(LoadedModels(ModelStore(settings.model_store), most=100))
        assert rebuild_weights(client.app.state.engine, forecaster, links) == set(city.counts) - {LINK}
        key = links_of(client, [LINK])[0].link_key
        assert stored_states(client)[key] == before[key]


class TestRegistry:
    def admin(self, client: TestClient, path: str, **body: Any) -> dict[str, Any]:
        answer = client.post(f"/v1/admin/links/{LINK}/models/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def states(self, client: TestClient) -> dict[int, tuple[str, str, bool]]:
        models = client.get(f"/v1/links/{LINK}/models").json()["models"]
        return {one["version"]: (one["algorithm"], one["state"], one["expert"]) for one in models}

    def test_one_algorithm_is_withdrawn_and_comes_back(self, client, city):
        post_slots(client, city, NOW, NOW + 2)
        done = self.admin(client, "deactivate", algorithm="NETWORK", reason="the network is old")
        assert (done["version"], done["previous_version"]) == (None, 1)
        assert self.states(client) == {1: ("NETWORK", "retired", True), 2: ("KR_SML", "active", True)}
        post_slots(client, city, NOW + 2, NOW + 3)
        one, (*_, last) = nearest(client), experts(client)
        assert (one["method"], one["degraded_reason"]) == ("ENSEMBLE", None)
        assert last["expected_counts"]["NETWORK"] is None
        assert last["expected_counts"]["KR_SML"] is not None
        self.admin(client, "1/activate")
        post_slots(client, city, NOW + 3, NOW + 4)
        assert experts(client)[-1]["expected_counts"]["NETWORK"] is not None
        refused = client.post(f"/v1/admin/links/{LINK}/models/deactivate", json={"algorithm": "MLKR"})
        assert refused.status_code == 409
        assert "no active MLKR model" in refused.json()["detail"]

    def test_without_any_the_profile_forecasts_until_an_expert_is_activated(self, client, city):
        self.admin(client, "deactivate")
        assert nearest(client)["method"] == "profile"
        assert client.get(f"/v1/links/{LINK}/models").json()["choice"] == "withdrawn"
        self.admin(client, "2/activate")
        assert nearest(client)["method"] == "ENSEMBLE"
        assert {state for _, state, _ in self.states(client).values()} == {"active", "retired"}

    def test_a_change_of_experts_is_served_at_once_and_keeps_the_weights(self, client, city):
        post_slots(client, city, NOW, NOW + 2)
        before = stored_states(client)
        self.admin(client, "deactivate", algorithm="KR_SML")
        one = nearest(client)
        assert one["as_of_slot"] == slot_start(city, NOW + 1)
        assert experts(client)[-1]["expected_counts"]["KR_SML"] is None
        after = stored_states(client)
        key = links_of(client, [LINK])[0].link_key
        here, there = unpack([before[key][1]]), unpack([after[key][1]])
        np.testing.assert_array_equal(here.regrets.cumulated, there.regrets.cumulated)

    def test_a_version_that_forecasts_alone_replaces_what_experts_issued(self, client, city):
        post_slots(client, city, NOW, NOW + 1)
        before = nearest(client)
        with writing(client.app.state.engine) as session:  # as if it had been trained by itself
            row = find_version(session, links_of(client, [LINK])[0].link_key, before["model_version"])
            row.about = {name: value for name, value in row.about.items() if name != AGGREGATION}
        self.admin(client, f"{before['model_version']}/activate")
        alone = nearest(client)
        assert (alone["method"], alone["model_version"]) == (row.algorithm, before["model_version"])
        assert alone["as_of_slot"] == before["as_of_slot"]
        assert alone["expected_count"] != before["expected_count"]
        self.admin(client, "deactivate")
        assert nearest(client)["method"] == "profile"

    @on_sqlite
    def test_a_slot_is_listed_once_after_a_change_of_experts(self, client, city):
        post_slots(client, city, NOW, NOW + 2)
        self.admin(client, "deactivate", algorithm="NETWORK")
        nearest(client)
        slots = [slot["slot_start"] for slot in experts(client)]
        assert len(slots) == len(set(slots)) == 3
        assert experts(client)[-1]["expected_counts"]["NETWORK"] is None

    @on_sqlite
    def test_activating_an_active_expert_again_shows_its_activation(self, client, city):
        shown = self.admin(client, "1/activate")
        assert (shown["version"], shown["activated_by"]) == (1, "command line")

    @on_sqlite
    def test_without_experts_another_active_model_forecasts_alone(self, client, city):
        key = links_of(client, [LINK])[0].link_key
        with writing(client.app.state.engine) as session:
            row = find_version(session, key, 1)
            row.algorithm, row.about = "KR", {name: value for name, value in row.about.items() if name != AGGREGATION}
        self.admin(client, "deactivate", algorithm="KR_SML")
        models = client.get(f"/v1/links/{LINK}/models").json()
        assert models["choice"] is None
        assert [one["version"] for one in models["models"] if one["serving"]] == [1]

    @on_sqlite
    def test_another_zone_ends_it(self, client, city):
        answer = client.put(f"/v1/links/{LINK}", params={"force": True}, json={"zone": "Europe/London"})
        assert answer.status_code == 200, answer.text
        assert nearest(client)["method"] == "profile"
        assert client.get(f"/v1/links/{LINK}/models").json()["choice"] is None


def test_the_states_of_new_experts_join_those_that_are_stored():
    state = replace(Aggregation.start(1))
    assert unpack([b"of another layout"]).expected.shape == state.expected.shape
