"""Forecasts by models of a network: the same as in training, whatever is late, missing or damaged."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from starlette.testclient import TestClient

from app.core.database import open_database, reading
from app.core.errors import Invalid
from app.core.schema import upgrade_schema
from app.core.slots import zone_named
from app.counts.series import LinkSeries, network_calendar
from app.demo.city import City, sample_city
from app.forecasts.issued_forecast import ForecastRequest
from app.links.queries import links_by_id
from app.links.tables import folder_name
from app.main import create_app
from app.registry.cleanup import sweep_store
from app.registry.loaded_models import LoadedModel
from app.registry.store import ModelStore
from app.training.link_training import LinkTraining, data_fingerprint
from app.training.train_links import train_link
from model.artifacts.link_models import load_model
from model.artifacts.network_models import save_network, save_network_model
from model.network_model.network import NetworkModel, context_source
from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkSeries
from model.network_model.training import NetworkResult, train_network
from tests.support.city import PLAN, SLOTS, post, put_city, register_models, rows, slot_start
from tests.support.city_databases import FilledDatabases
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY

pytestmark = pytest.mark.journey

TRAINED_DAYS = 15
NOW = TRAINED_DAYS * SLOTS  # the first slot without a count
NETWORK_PLAN = NetworkPlan(held_out_days=4, metric_rows=300, max_iter=2, network_rows=2000, n_neighbors=40)
KNOWN = NOW - 9 * SLOTS  # the first slot whose count the service has: a row looks back a week and a day
SHARES = {0: (0.5, 0.25), 1: (0.0, 0.5), 2: (1.0, 0.0)}  # so that every kind of memory is used; the others' have none


class Trained(NamedTuple):
    city: City
    folder: Path
    network: str


@pytest.fixture(scope="module")
def result() -> tuple[City, NetworkResult]:
    city = sample_city(links=6, days=18, seed=5)
    return city, train_network(_series(city), NETWORK_PLAN)


@pytest.fixture(scope="module")
def trained(result: tuple[City, NetworkResult], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a small city, and a folder with the models of its network."""
    folder = tmp_path_factory.mktemp("network")
    return Trained(result[0], folder, _save(*result, folder))


def _series(city: City) -> NetworkSeries:
    ids = tuple(city.counts)
    calendar = network_calendar(city.grid, zone_named(city.zone), city.first_slot, NOW, "DE")
    upstream = tuple(tuple(ids.index(above) for above in link.upstream if above in ids) for link in city.links)
    junction = np.array([0, 0, 1, 1, 1, -1])
    counts = np.stack([city.counts[link_id][:NOW] for link_id in ids])
    return NetworkSeries(ids, counts, calendar, junction, upstream, city.first_slot, "DE")


def _save(city: City, result: NetworkResult, folder: Path, **about: Any) -> str:
    fingerprint = save_network(folder, result.network, about)
    for place, model in enumerate(result.models):
        assert model is not None
        shared = replace(model, shares=np.array(SHARES.get(place, (0.0, 0.0))))
        _save_link(city, shared, fingerprint, folder, **about)
    return fingerprint


def _link_series(city: City, link_id: str) -> LinkSeries:
    counts = city.counts[link_id][:NOW]
    return LinkSeries(link_id, city.grid, zone_named(city.zone), city.first_slot, counts, np.zeros(NOW, dtype=bool))


def _save_link(city: City, model: NetworkModel, network: str, folder: Path, **about: Any) -> None:
    link_id = model.network.link_ids[model.link]
    measure = {"value": 1.0, "n_used": 100, "n_excluded": 0}
    described = {
        "link_id": link_id,
        "zone": city.zone,
        "slot_minutes": 15,
        "trained_from": city.grid.start(city.first_slot).isoformat(),
        "trained_to": city.grid.start(city.first_slot + NOW).isoformat(),
        "plan": {"algorithm": "NETWORK"},
        "held_out": {"candidate": {"rmse": measure}},
        "verdicts": [],
        "suspect": 0,
        "gaps": 0,
        "data_fingerprint": data_fingerprint(_link_series(city, link_id)),
        **about,
    }
    save_network_model(folder / folder_name(link_id), model, network, described)


@pytest.fixture(scope="module")
def city_databases(trained: Trained, request: Any, tmp_path_factory: pytest.TempPathFactory) -> FilledDatabases:
    """Return databases with the city's links, nine days of counts and active models."""

    def fill(client: TestClient) -> None:
        put_city(client, trained.city)
        register_models(client, trained.folder, list(trained.city.counts))
        post(client, rows(trained.city, KNOWN, NOW))

    return FilledDatabases(request, tmp_path_factory.mktemp("network-city"), fill)


def forecast(client: TestClient, link_id: str, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/links/{link_id}/forecast", params={"horizon": 4, **query})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def computed_in_training(trained: Trained, link_id: str, row: int, counts: np.ndarray | None = None) -> Any:
    """Forecast as of the slot before ``row`` from the counts of all links, by rows as they are made while learning."""
    city = trained.city
    model, _ = load_model(trained.folder / folder_name(link_id))
    if counts is None:
        counts = np.stack(list(city.counts.values()))
    calendar = network_calendar(city.grid, zone_named(city.zone), city.first_slot, counts.shape[1], "DE")
    source = context_source(model.network, counts, calendar, np.arange(len(counts)), None)
    found = [source.rows(np.array([row]), horizon, np.array([model.link])) for horizon in range(1, 5)]
    return model.forecast([one.columns[0] for one in found], np.stack([one.profile[0] for one in found], axis=1))


def assert_served(served: dict[str, Any], expected: Any) -> None:
    for h, one in enumerate(served["forecasts"]):
        assert one["expected_count"] == pytest.approx(expected.expected[0, h], abs=6e-4)
        assert one["lower"] == pytest.approx(expected.lower[0, h], abs=6e-4)
        assert one["upper"] == pytest.approx(expected.upper[0, h], abs=6e-4)


class TestForecasts:
    @on_sqlite
    def test_serving_and_training_are_one_path(self, client, city, trained):
        for link_id in city.counts:
            served = forecast(client, link_id)
            assert_served(served, computed_in_training(trained, link_id, NOW))
            assert [one["horizon"] for one in served["forecasts"]] == [1, 2, 3, 4]
            for h, one in enumerate(served["forecasts"]):
                assert (one["method"], one["model_version"]) == ("NETWORK", 1)
                assert (one["degraded_reason"], one["level"]) == (None, 0.9)
                assert (one["slot_start"], one["as_of_slot"]) == (slot_start(city, NOW + h), slot_start(city, NOW - 1))
                assert one["lower"] <= one["expected_count"] <= one["upper"]

    @on_sqlite
    def test_it_is_so_to_the_last_digits(self, client, city, trained):  # of single precision, in which memories are
        runtime = client.app.state
        with reading(runtime.engine) as session:
            links = links_by_id(session, list(city.counts))
            newest = int(city.grid.start(city.first_slot + NOW - 1).timestamp())
            models = [load_model(trained.folder / link_id)[0] for link_id in links]
            loaded = [LoadedModel(1, model, "") for model in models]
            requests = [ForecastRequest(link, newest, one) for link, one in zip(links.values(), loaded, strict=True)]
            found = runtime.forecast_cache.forecaster.networks.compute(session, requests)
        for link_id, link in links.items():
            expected = computed_in_training(trained, link_id, NOW)
            assert found[link.link_key].expected == pytest.approx(expected.expected[0], abs=1e-5)
            assert found[link.link_key].lower == pytest.approx(expected.lower[0], abs=1e-5)
            assert found[link.link_key].upper == pytest.approx(expected.upper[0], abs=1e-5)

    def test_slot_after_slot_from_what_is_kept_and_what_is_new(self, client, city, trained):
        for now in range(NOW + 1, NOW + 7):
            post(client, rows(city, now - 1, now))
            for link_id in list(city.counts)[:3]:
                assert_served(forecast(client, link_id), computed_in_training(trained, link_id, now))

    @on_sqlite
    def test_a_past_slot_is_answered_from_what_was_known_then(self, client, city, trained):
        for ago in (1, 40):
            served = forecast(client, next(iter(city.counts)), as_of=slot_start(city, NOW - 1 - ago))
            assert_served(served, computed_in_training(trained, next(iter(city.counts)), NOW - ago))

    @on_sqlite
    def test_later_counts_change_nothing(self, client, city):
        queries = {link_id: {"as_of": slot_start(city, NOW - 2)} for link_id in city.counts}
        before = {link_id: forecast(client, link_id, **query) for link_id, query in queries.items()}
        later = rows(city, NOW, NOW + 30)
        post(client, [row | {"count": row["count"] + 500} for row in later])
        post(client, [row | {"count": 999} for row in rows(city, NOW - 1, NOW)])
        for link_id, query in queries.items():
            after = forecast(client, link_id, **query)
            for one, other in zip(before[link_id]["forecasts"], after["forecasts"], strict=True):
                for name in ("expected_count", "lower", "upper", "filled_lags", "method"):
                    assert one[name] == other[name]

    @on_sqlite
    def test_a_network_of_which_some_links_are_later_than_others(self, client, city, trained):
        early, late = next(iter(city.counts)), list(city.counts)[1]
        post(client, rows(city, NOW, NOW + 2, [early]))
        counts = np.stack(list(city.counts.values()))
        counts[1:, NOW:] = np.nan
        counts[:, NOW + 2 :] = np.nan
        assert_served(forecast(client, early), computed_in_training(trained, early, NOW + 2, counts))
        post(client, rows(city, NOW, NOW + 1, [late]))  # sees what the early link counted then, and no more
        counts[1, NOW] = city.counts[late][NOW]
        assert forecast(client, late)["forecasts"][0]["as_of_slot"] == slot_start(city, NOW)
        assert_served(forecast(client, late), computed_in_training(trained, late, NOW + 1, counts))

    @on_sqlite
    def test_few_gaps_are_filled_by_rule(self, client, trained):
        city, link_id = trained.city, list(trained.city.counts)[2]
        put_city(client, city)
        register_models(client, trained.folder, list(city.counts))
        gaps = {NOW - 2, NOW - 5, NOW - 20}
        posted = rows(city, KNOWN, NOW)
        starts = {slot_start(city, slot) for slot in gaps}
        post(client, [row for row in posted if row["link_id"] != link_id or row["slot_start"] not in starts])
        served = forecast(client, link_id)
        counts = np.stack(list(city.counts.values()))
        counts[2, list(gaps)] = np.nan
        missing = int(np.isnan(counts[2, NOW - 32 : NOW]).sum())
        assert {one["filled_lags"] for one in served["forecasts"]} == {missing}
        assert served["forecasts"][0]["method"] == "NETWORK"
        assert_served(served, computed_in_training(trained, link_id, NOW, counts))

    @on_sqlite
    def test_a_day_ahead_it_fades_to_the_profile_of_the_network(self, client, city, trained):
        cache = client.app.state.forecast_cache
        listed = client.get("/v1/forecasts?horizon=96").json()["links"]
        for link_id, link in zip(sorted(city.counts), listed, strict=True):
            whole = forecast(client, link_id, horizon=96)["forecasts"]
            assert whole == link["forecasts"]
            assert whole[:4] == forecast(client, link_id)["forecasts"]
            assert {(one["method"], one["model_version"]) for one in whole} == {("NETWORK", 1)}
            issued = cache.look_up([link_id])[link_id].issued
            profile = cache.forecaster.profiles.in_memory(issued.link, issued.as_of, 1)
            assert profile.holidays == "DE"
            model, _ = load_model(trained.folder / folder_name(link_id))
            calendar = city.grid.calendar(city.first_slot + NOW, 96, zone_named(city.zone))
            usual = model.profile.at(calendar.weekday, calendar.slot_of_day)
            deviation = np.mean([whole[h]["expected_count"] - usual[h] for h in range(4)])
            for h in (4, 9, 30, 95):
                faded = max(0.0, usual[h] + deviation * 0.5 ** ((h - 3) / 4))
                assert whole[h]["expected_count"] == pytest.approx(faded, abs=2e-3)
                assert whole[h]["lower"] <= whole[h]["expected_count"] <= whole[h]["upper"]

    @on_sqlite
    def test_many_gaps_are_the_profiles(self, client, city, trained):
        link_id = list(city.counts)[2]
        post(client, rows(city, NOW + 10, NOW + 11, [link_id]))
        one = forecast(client, link_id)["forecasts"][0]
        assert (one["method"], one["model_version"]) == ("profile", 1)
        assert "of 32 lags are missing; at most 6 may be filled" in one["degraded_reason"]
        assert forecast(client, link_id, explain=True)["explanation"] is None
        model, _ = load_model(trained.folder / link_id)
        calendar = city.grid.calendar(city.first_slot + NOW + 11, 1, zone_named(city.zone))
        assert one["expected_count"] == pytest.approx(
            model.profile.at(calendar.weekday, calendar.slot_of_day)[0], abs=6e-4
        )

    @on_sqlite
    def test_a_feed_that_went_silent_is_the_profiles(self, client, city):
        late = next(iter(city.counts))
        post(client, rows(city, NOW, NOW + 20, list(city.counts)[1:]))
        one = forecast(client, late)["forecasts"][0]
        assert (one["method"], one["model_version"]) == ("profile", 1)
        assert "no count has come for more than" in one["degraded_reason"]

    @on_sqlite
    def test_beside_models_on_lags_in_one_post(self, client, city, trained, tmp_path):
        link_id = list(city.counts)[3]
        lags = tmp_path / "lags"
        lags.mkdir()
        assert train_link(LinkTraining(_link_series(city, link_id), PLAN), lags).state == "trained"
        assert register_models(client, lags, [link_id]) == [2]
        assert post(client, rows(city, NOW, NOW + 1))["forecasts_issued"] == len(city.counts)
        served = {one["link_id"]: one["forecasts"][0] for one in client.get("/v1/forecasts").json()["links"]}
        assert (served[link_id]["method"], served[link_id]["model_version"]) == ("KR_SML", 2)
        others = [one for other, one in served.items() if other != link_id]
        assert {(one["method"], one["model_version"]) for one in others} == {("NETWORK", 1)}
        for other in set(city.counts) - {link_id}:
            assert_served(forecast(client, other), computed_in_training(trained, other, NOW + 1))

    def test_a_link_of_the_network_that_was_deleted_is_just_absent(self, client, settings, city, trained):
        gone, link_id = list(city.counts)[5], next(iter(city.counts))
        answer = client.delete(f"/v1/links/{gone}", params={"force": True})
        assert answer.status_code in (200, 204), answer.text
        counts = np.stack(list(city.counts.values()))
        counts[5] = np.nan
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as fresh:
            post(fresh, rows(city, NOW, NOW + 1, list(city.counts)[:5]))
            assert_served(forecast(fresh, link_id), computed_in_training(trained, link_id, NOW + 1, counts))


class TestExplain:
    @on_sqlite
    def test_parts_add_up_and_neighbours_name_link_and_slot(self, client, city):
        slots = {slot_start(city, i): i for i in range(NOW)}
        for place in (0, 1, 2, 4):
            self.check(client, city, place, slots)

    def check(self, client, city, place, slots):
        link_id = list(city.counts)[place]
        served = forecast(client, link_id, explain=True)
        why = served["explanation"]
        parts = {one["part"]: one["vehicles"] for one in why["context"]}
        assert sum(parts.values()) == pytest.approx(served["forecasts"][0]["expected_count"], abs=1e-2)
        assert set(parts) == {
            "usual", "lags", "yesterday", "last_week", "profile", "deviations", "time_of_day", "day_type", "upstream",
            "junction", "network", "offset", "correction",
        }  # fmt: skip
        own, network = SHARES.get(place, (0.0, 0.0))
        assert why["shares"] == {"own": own, "network": network}
        assert (parts["correction"] != 0.0) == (own + network > 0.0)
        assert why["lags"] == []
        near = why["neighbours"]
        assert len(near) == (12 if own + network else 0)
        assert sum(one["weight"] for one in near) <= 1.0
        assert [one["weight"] for one in near] == sorted((one["weight"] for one in near), reverse=True)
        if own and not network:
            assert {one["link_id"] for one in near} == {link_id}
        for one in near:
            slot = slots[one["slot_start"]]
            came = [city.counts[one["link_id"]][i] if KNOWN <= i < NOW else np.nan for i in range(slot, slot + 4)]
            assert one["counts"] == [None if np.isnan(count) else count for count in came]
            assert len(one["missed"]) == 4

    @on_sqlite
    def test_as_of_a_past_slot(self, client, city):
        served = forecast(client, next(iter(city.counts)), explain=True, as_of=slot_start(city, NOW - 30))
        parts = [one["vehicles"] for one in served["explanation"]["context"]]
        assert sum(parts) == pytest.approx(served["forecasts"][0]["expected_count"], abs=1e-2)


def _damage(network: Path) -> None:
    file = network / "memory.npy"
    raw = bytearray(file.read_bytes())
    raw[-7] ^= 1
    file.write_bytes(raw)


def _cut_short(network: Path) -> None:
    os.truncate(network / "expected_counts.npy", 200)


class TestStore:
    @on_sqlite
    def test_the_registry_shows_a_network_model(self, client, city, trained, settings):
        link_id = next(iter(city.counts))
        one = client.get(f"/v1/links/{link_id}/models/1").json()
        assert (one["algorithm"], one["state"], one["network"]) == ("NETWORK", "active", trained.network)
        assert one["lag_weights"] == []
        assert sum(column["weight"] for column in one["context_weights"]) == pytest.approx(1.0, abs=1e-4)
        assert {"part", "column", "weight"} == set(one["context_weights"][0])
        own = settings.model_store / folder_name(link_id) / "1"
        assert one["size_bytes"] == sum(file.stat().st_size for file in own.iterdir())
        assert [folder.name for folder in (settings.model_store / ".networks").iterdir()] == [trained.network]

    @pytest.mark.parametrize("damage", [_damage, _cut_short, shutil.rmtree])
    @on_sqlite
    def test_a_damaged_network_is_noticed_while_it_is_in_memory(self, client, city, trained, settings, damage):
        assert forecast(client, next(iter(city.counts)))["forecasts"][0]["method"] == "NETWORK"
        damage(settings.model_store / ".networks" / trained.network)
        post(client, rows(city, NOW, NOW + 1))
        for link_id in city.counts:
            one = forecast(client, link_id)["forecasts"][0]
            assert one["method"] == "profile"
            assert "version 1 is damaged: its network" in one["degraded_reason"]
        ready = client.get("/readyz").json()
        assert ready["status"] == "degraded"
        assert {one["link_id"] for one in ready["models"]["damaged"]} == set(city.counts)
        # Registered again it is repaired, and used for the next forecast.
        assert register_models(client, trained.folder, list(city.counts)) == [1] * len(city.counts)
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as fresh:
            post(fresh, rows(city, NOW + 1, NOW + 2))
            assert forecast(fresh, next(iter(city.counts)))["forecasts"][0]["method"] == "NETWORK"

    @on_sqlite
    def test_a_damaged_network_is_not_registered(self, client, trained, settings, tmp_path):
        put_city(client, trained.city)
        folder = shutil.copytree(trained.folder, tmp_path / "copy")
        _damage(folder / ".networks" / trained.network)
        with pytest.raises(Invalid, match=r"must be a sound artifact: its network .* is damaged: memory\.npy was"):
            register_models(client, folder, [next(iter(trained.city.counts))])
        assert not list(settings.model_store.rglob("manifest.json"))

    @on_sqlite
    def test_the_last_sound_version_answers(self, client, city, result, trained, settings, tmp_path):
        again = _save(*result, tmp_path / "again", note="learnt again")
        assert again != trained.network
        assert set(register_models(client, tmp_path / "again", list(city.counts))) == {2}
        post(client, rows(city, NOW, NOW + 1))
        link_id = list(city.counts)[1]
        assert forecast(client, link_id)["forecasts"][0]["model_version"] == 2
        shutil.rmtree(settings.model_store / ".networks" / again)
        post(client, rows(city, NOW + 1, NOW + 2))
        one = forecast(client, link_id)["forecasts"][0]
        assert (one["method"], one["model_version"]) == ("NETWORK", 1)
        assert "version 2 is damaged: its network" in one["degraded_reason"]
        assert "is missing; version 1 is used" in one["degraded_reason"]
        assert again[:12] in json.dumps(client.get("/readyz").json(), ensure_ascii=False)

    def test_sweeping_keeps_networks_in_use(self, client, city, result, trained, settings, tmp_path):
        runtime, store = client.app.state, ModelStore(settings.model_store)
        unused = _save(*result, tmp_path / "unused", note="nobody's")
        store.add_network(tmp_path / "unused" / ".networks" / unused, unused)
        assert sweep_store(runtime.engine, store) == []  # it may be about to be registered
        for path in (settings.model_store / ".networks").rglob("*"):
            os.utime(path, (0, 0))
        assert sweep_store(runtime.engine, store) == [f".networks/{unused}"]
        for place in store.places():
            store.remove(place)
        assert sweep_store(runtime.engine, store) == []  # rows refer to it, even where no artifact does
        assert store.networks() == [f".networks/{trained.network}"]

    @on_sqlite
    def test_sweeping_for_another_database_keeps_networks_of_artifacts(self, client, city, trained, settings, tmp_path):
        other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
        upgrade_schema(other)
        for path in settings.model_store.rglob("*"):
            os.utime(path, (0, 0))
        assert sweep_store(other, ModelStore(settings.model_store)) == []
        other.dispose()

    @on_sqlite
    def test_a_link_that_its_network_knows_by_another_name_is_refused(self, client, city, result, trained, tmp_path):
        model = result[1].models[0]
        assert model is not None
        folder = tmp_path / "wrong"
        fingerprint = save_network(folder, model.network, {})
        other = list(city.counts)[1]
        _save_link(city, model, fingerprint, folder, link_id=other)
        shutil.move(folder / next(iter(city.counts)), folder / other)
        with pytest.raises(Invalid, match="its place in its network is another link's"):
            register_models(client, folder, [other])
