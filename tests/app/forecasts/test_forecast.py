import json
import os
import shutil
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
from starlette.testclient import TestClient

from app.core.slots import zone_named
from app.main import create_app
from model.artifacts.link_models import load_model
from tests.support.artifacts import copy_with_about
from tests.support.city import PLAN, SLOTS, TRAINED_DAYS, post, put_city, register_models, rows, slot_start, train_city
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY
from tests.support.waiting import wait_until

NOW = TRAINED_DAYS * SLOTS  # the first slot without a count


@pytest.fixture
def link_id(city):
    return next(iter(city.counts))


def forecast(client, link_id, status=200, **query):
    answer = client.get(f"/v1/links/{link_id}/forecast", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


class TestForecast:
    @on_sqlite
    def test_it_is_the_forecast_of_the_trained_model(self, client, city, link_id, trained):
        served = forecast(client, link_id, horizon=4)
        model, _ = load_model(trained[1] / link_id)
        window = city.counts[link_id][NOW - 12 : NOW][::-1]
        expected = model.forecast(window[None, :])
        assert served["link_id"] == link_id
        assert [one["horizon"] for one in served["forecasts"]] == [1, 2, 3, 4]
        for h, one in enumerate(served["forecasts"]):
            assert one["expected_count"] == pytest.approx(expected.expected[0, h], abs=6e-4)
            assert one["lower"] == pytest.approx(expected.lower[0, h], abs=6e-4)
            assert one["upper"] == pytest.approx(expected.upper[0, h], abs=6e-4)
            assert one["flow"] == pytest.approx(4 * one["expected_count"], abs=1e-3)
            assert one["slot_start"] == slot_start(city, NOW + h)
            assert one["as_of_slot"] == slot_start(city, NOW - 1)
            assert one["method"] == "KR_SML"
            assert one["degraded_reason"] is None
            assert one["model_version"] == 1
            assert one["data_age_seconds"] == 0
            assert one["filled_lags"] == 0
            assert one["level"] == 0.9

    def test_reading_again_returns_the_stored_forecast(self, client, link_id):
        assert forecast(client, link_id) == forecast(client, link_id)

    def test_another_process_returns_the_same_stored_forecast(self, client, settings, link_id):
        served = forecast(client, link_id, horizon=4)
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as other:
            assert forecast(other, link_id, horizon=4) == served

    def test_a_new_count_moves_the_forecast_on(self, client, city, link_id):
        report = post(client, rows(city, NOW, NOW + 1, [link_id]))
        assert report["forecasts_issued"] == 1
        assert forecast(client, link_id)["forecasts"][0]["slot_start"] == slot_start(city, NOW + 1)

    def test_a_count_that_another_process_took_moves_the_forecast_on(self, client, settings, city, link_id):
        forecast(client, link_id)
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as other:
            post(other, rows(city, NOW, NOW + 1, [link_id]))
        moved = slot_start(city, NOW + 1)
        wait_until(lambda: forecast(client, link_id)["forecasts"][0]["slot_start"] == moved)

    def test_late_and_corrected_counts_leave_issued_forecasts_as_they_were(self, client, city, link_id):
        served = forecast(client, link_id, horizon=4)
        wrong = [row | {"count": row["count"] + 50} for row in rows(city, NOW - 3, NOW, [link_id])]
        post(client, wrong)
        assert forecast(client, link_id, horizon=4) == served

    @on_sqlite
    def test_as_of_a_past_slot_looks_at_nothing_after_it_and_stores_nothing(self, client, city, link_id, trained):
        past = NOW - 200
        served = forecast(client, link_id, as_of=slot_start(city, past))["forecasts"][0]
        model, _ = load_model(trained[1] / link_id)
        window = city.counts[link_id][past - 11 : past + 1][::-1]
        assert served["expected_count"] == pytest.approx(model.expected_counts(window[None, :])[0, 0], abs=6e-4)
        assert served["slot_start"] == slot_start(city, past + 1)
        history = client.get(
            f"/v1/links/{link_id}/forecasts", params={"from": slot_start(city, 0), "to": slot_start(city, NOW)}
        )
        assert history.json()["forecasts"] == []

    @on_sqlite
    def test_explain_lists_when_it_looked_like_this_before(self, client, city, link_id):
        reasons = forecast(client, link_id, explain=True, horizon=1)["explanation"]
        weights = [one["weight"] for one in reasons["neighbours"]]
        assert weights == sorted(weights, reverse=True)
        assert 0.5 < sum(weights) <= 1.0 + 1e-6
        first, last = slot_start(city, 0), slot_start(city, NOW)
        assert all(first <= one["slot_start"] < last for one in reasons["neighbours"])
        # What a neighbour lends is what came then, but for the share of the level.
        assert all(len(one["counts"]) == 4 for one in reasons["neighbours"])
        assert {one["lag"] for one in reasons["lags"]} <= set(range(1, 13))
        assert sum(one["weight"] for one in reasons["lags"]) == pytest.approx(1.0, abs=1e-3)

    def test_a_link_that_does_not_exist_is_404_and_one_without_counts_409(self, client, put_link):
        put_link("new")
        assert "does not exist" in forecast(client, "nowhere", 404)["detail"]
        assert "no counts yet" in forecast(client, "new", 409)["detail"]
        assert "no counts yet" in forecast(client, "new", 409, explain=True)["detail"]

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ({"horizon": 0}, 422),
            ({"horizon": 97}, 422),
            ({"as_of": "2025-09-01T00:01:00Z"}, 422),
            ({"as_of": "noon"}, 422),
            ({"as_of": "2035-09-01T00:00:00Z"}, 409),
        ],
    )
    @on_sqlite
    def test_impossible_queries_are_refused(self, client, link_id, query, status):
        forecast(client, link_id, status, **query)


def _cut_short(folder):
    for file in folder.glob("*.npy"):
        os.truncate(file, 100)


def _overwrite(folder):
    for file in folder.glob("*.npy"):
        with file.open("r+b") as opened:
            opened.seek(-8, os.SEEK_END)
            opened.write(b"\1" * 8)


class TestDegrading:
    @on_sqlite
    def test_without_a_model_the_profile_is_the_forecast(self, client, trained):
        city, _ = trained
        put_city(client, city)
        link_id = next(iter(city.counts))
        post(client, rows(city, 0, NOW, [link_id]))
        one = forecast(client, link_id)["forecasts"][0]
        assert (one["method"], one["model_version"]) == ("profile", None)
        assert "no trained model" in one["degraded_reason"]
        assert one["lower"] <= one["expected_count"] <= one["upper"]

    @on_sqlite
    def test_with_a_handful_of_counts_the_last_one_is_the_forecast(self, client, put_link, trained):
        city, _ = trained
        put_city(client, city)
        link_id = next(iter(city.counts))
        post(client, rows(city, 40, 43, [link_id]))
        one = forecast(client, link_id, horizon=4)["forecasts"][3]
        assert one["method"] == "last_count"
        assert one["expected_count"] == city.counts[link_id][42]
        assert one["lower"] is None

    @on_sqlite
    def test_few_gaps_are_filled_and_counted(self, client, city, link_id):
        later = [row for i, row in enumerate(rows(city, NOW, NOW + 6, [link_id])) if i not in (2, 3)]
        post(client, later)
        one = forecast(client, link_id)["forecasts"][0]
        assert (one["method"], one["filled_lags"]) == ("KR_SML", 2)

    @on_sqlite
    def test_a_window_full_of_gaps_falls_back_to_the_profile(self, client, city, link_id):
        post(client, rows(city, NOW + 20, NOW + 21, [link_id]))
        one = forecast(client, link_id)["forecasts"][0]
        assert one["method"] == "profile"
        assert "11 of 12 lags are missing" in one["degraded_reason"]
        assert one["model_version"] == 1

    @on_sqlite
    def test_a_dead_feed_falls_back_to_the_profile_with_its_age(self, client, city, link_id):
        other = list(city.counts)[1]
        post(client, rows(city, NOW, NOW + 7, [other]))  # the feed's clock goes on without the first link
        one = forecast(client, link_id)["forecasts"][0]
        assert one["data_age_seconds"] == 7 * 900
        assert one["method"] == "profile"
        assert "90 minutes" in one["degraded_reason"]
        assert one["slot_start"] == slot_start(city, NOW + 7)  # the slot that contains now

    def test_the_feeds_clock_goes_on_with_what_another_process_took(self, client, settings, city, link_id):
        assert forecast(client, link_id)["forecasts"][0]["data_age_seconds"] == 0
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as other:
            post(other, rows(city, NOW, NOW + 2, [list(city.counts)[1]]))
        wait_until(lambda: forecast(client, link_id)["forecasts"][0]["data_age_seconds"] == 2 * 900)

    @on_sqlite
    def test_a_feed_just_in_time_is_still_the_models(self, client, city, link_id):
        post(client, rows(city, NOW, NOW + 6, [list(city.counts)[1]]))
        assert forecast(client, link_id)["forecasts"][0]["method"] == "KR_SML"

    @pytest.mark.journey
    @on_sqlite
    def test_a_damaged_artifact_falls_back_to_the_last_sound_version(
        self, client, settings, city, link_id, trained, tmp_path
    ):
        (tmp_path / "again").mkdir()
        copy_with_about(trained[1] / link_id, tmp_path / "again" / link_id, gaps=1)
        register_models(client, tmp_path / "again", [link_id])
        assert forecast(client, link_id)["forecasts"][0]["model_version"] == 2
        newest = sorted(settings.model_store.rglob("manifest.json"), key=lambda path: path.stat().st_mtime)[-1].parent
        memory = next(newest.glob("memory*.npy"))
        raw = bytearray(memory.read_bytes())
        raw[-7] ^= 1
        memory.write_bytes(raw)
        post(client, rows(city, NOW, NOW + 1, [link_id]))
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as fresh:  # nothing in memory yet
            post(fresh, rows(city, NOW + 1, NOW + 2, [link_id]))
            one = forecast(fresh, link_id)["forecasts"][0]
            assert (one["method"], one["model_version"]) == ("KR_SML", 1)
            assert "version 2 is damaged" in one["degraded_reason"]
            assert "damaged" in json.dumps(fresh.get("/readyz").json())

    @pytest.mark.parametrize("damage", [_cut_short, _overwrite, shutil.rmtree])
    @on_sqlite
    def test_an_artifact_damaged_while_it_is_in_memory_is_noticed(self, client, settings, city, link_id, damage):
        assert forecast(client, link_id)["forecasts"][0]["method"] == "KR_SML"
        damage(settings.model_store / link_id / "1")
        post(client, rows(city, NOW, NOW + 1, [link_id]))
        one = forecast(client, link_id)["forecasts"][0]
        assert one["method"] == "profile"
        assert "version 1 is damaged" in one["degraded_reason"]
        assert client.get("/readyz").json()["models"]["damaged"][0]["link_id"] == link_id

    @on_sqlite
    def test_an_artifact_that_was_only_touched_is_read_again(self, client, settings, city, link_id):
        for file in (settings.model_store / link_id / "1").iterdir():
            os.utime(file, ns=(0, 0))
        post(client, rows(city, NOW, NOW + 1, [link_id]))
        assert forecast(client, link_id)["forecasts"][0]["method"] == "KR_SML"


class TestActivation:
    def test_a_newly_activated_model_forecasts_the_same_slot(self, client, city, link_id, tmp_path):
        before = forecast(client, link_id)["forecasts"][0]
        only = replace(city, counts={link_id: city.counts[link_id]})
        train_city(only, tmp_path / "again", replace(PLAN, n_neighbors=4, algorithm="KR"))
        register_models(client, tmp_path / "again", [link_id])
        after = forecast(client, link_id)["forecasts"][0]
        assert (before["model_version"], after["model_version"]) == (1, 2)
        assert after["method"] == "KR"
        assert after["slot_start"] == before["slot_start"]


class TestNetwork:
    def test_every_link_comes_with_its_status(self, client, city, put_link):
        put_link("empty")
        links = client.get("/v1/forecasts").json()["links"]
        assert [one["link_id"] for one in links] == sorted([*city.counts, "empty"])
        by_id = {one["link_id"]: one for one in links}
        assert by_id["empty"] == {"link_id": "empty", "status": "no_counts", "forecasts": []}
        for link_id in city.counts:
            assert by_id[link_id]["status"] == "ok"
            assert by_id[link_id]["forecasts"] == forecast(client, link_id)["forecasts"]

    def test_filters_by_list_box_and_upstream(self, client, city):
        ids = sorted(city.counts)

        def listed(**query):
            return [one["link_id"] for one in client.get("/v1/forecasts", params=query).json()["links"]]

        assert listed(links=f"{ids[1]}, nowhere") == [ids[1]]
        assert listed(bbox="-180,-90,180,90") == ids
        assert listed(bbox="0,0,0.1,0.1") == []
        assert listed(bbox="170,-90,-170,90") == []  # across the 180th meridian
        assert listed(bbox="0.1,-90,0,90") == ids  # all of the world but a tenth of a degree
        upstream = {link.link_id: set(link.upstream) for link in city.links}
        for link_id in ids:
            assert listed(upstream_of=link_id) == sorted(upstream[link_id])
        for bad in ("1,2,3", "a,b,c,d", "0,10,0,-10", "nan,0,1,1"):
            assert client.get("/v1/forecasts", params={"bbox": bad}).status_code == 422
        for unreadable in ({"links": "a;b"}, {"upstream_of": "a b"}):
            assert client.get("/v1/forecasts", params=unreadable).status_code == 422
        assert client.get("/v1/forecasts", params={"upstream_of": "nowhere"}).status_code == 404

    def test_an_etag_spares_what_did_not_change(self, client, city, link_id):
        first = client.get("/v1/forecasts")
        tag = first.headers["etag"]
        for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
            again = client.get("/v1/forecasts", headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
        post(client, rows(city, NOW, NOW + 1, [link_id]))
        moved = client.get("/v1/forecasts", headers={"If-None-Match": first.headers["etag"]})
        assert moved.status_code == 200
        assert moved.headers["etag"] != first.headers["etag"]

    @on_sqlite
    def test_one_bad_link_never_spoils_the_answer(self, client, settings, city, link_id):
        for folder in settings.model_store.glob(f"{link_id}*"):
            shutil.rmtree(folder)
        post(client, rows(city, NOW, NOW + 1))
        with TestClient(create_app(settings), headers={"X-API-Key": ADMIN_KEY}) as fresh:
            post(fresh, rows(city, NOW + 1, NOW + 2))
            by_id = {one["link_id"]: one["status"] for one in fresh.get("/v1/forecasts").json()["links"]}
        assert by_id.pop(link_id) == "degraded"
        assert set(by_id.values()) == {"ok"}

    @on_sqlite
    def test_an_unexpected_failure_stays_with_its_link(self, client, city, link_id):
        from sqlalchemy import text

        from app.core.database import writing

        with writing(client.app.state.engine) as session:
            session.execute(text("UPDATE links SET zone = 'Mars/Olympus' WHERE link_id = :id"), {"id": link_id})
        report = post(client, rows(city, NOW, NOW + 1))
        assert report["forecasts_issued"] >= len(city.counts) - 1
        by_id = {one["link_id"]: one["status"] for one in client.get("/v1/forecasts").json()["links"]}
        assert by_id.pop(link_id) in ("failed", "degraded")
        assert set(by_id.values()) == {"ok"}
        assert client.get(f"/v1/links/{link_id}/forecast").status_code in (200, 503)


class TestPastForecasts:
    def test_forecasts_come_with_the_counts_that_came(self, client, city, link_id):
        served = []
        for i in range(NOW, NOW + 5):
            served += forecast(client, link_id)["forecasts"]
            post(client, rows(city, i, i + 1, [link_id]))
        query = {"from": slot_start(city, NOW), "to": slot_start(city, NOW + 6), "horizon": 1}
        past = client.get(f"/v1/links/{link_id}/forecasts", params=query).json()["forecasts"]
        assert len(past) == 6
        assert past[-1]["count"] is None
        assert past[-1]["realised_error"] is None
        for one, then, i in zip(past, served, range(NOW, NOW + 5), strict=False):
            assert one["expected_count"] == then["expected_count"]
            assert one["count"] == city.counts[link_id][i]
            assert one["realised_error"] == pytest.approx(then["expected_count"] - one["count"])
            assert one["issued_at"] == then["issued_at"]

    def test_pages_hold_together(self, client, city, link_id):
        for i in range(NOW, NOW + 3):
            post(client, rows(city, i, i + 1, [link_id]))
        query = {"from": slot_start(city, NOW), "to": slot_start(city, NOW + 10)}
        whole = client.get(f"/v1/links/{link_id}/forecasts", params=query).json()["forecasts"]
        pages, cursor = [], {}
        while True:
            page = client.get(f"/v1/links/{link_id}/forecasts", params=query | {"limit": 3} | cursor).json()
            pages += page["forecasts"]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert pages == whole
        assert len(whole) == 4 * 4

    @on_sqlite
    def test_backfilled_slots_get_no_forecast(self, client, trained):
        city, _ = trained
        put_city(client, city)
        link_id = next(iter(city.counts))
        post(client, rows(city, 0, 50, [link_id]))
        query = {"from": slot_start(city, 0), "to": slot_start(city, 60)}
        past = client.get(f"/v1/links/{link_id}/forecasts", params=query).json()["forecasts"]
        assert {one["slot_start"] for one in past} == {slot_start(city, i) for i in range(50, 54)}


@on_sqlite
def test_the_profile_is_the_models_own_in_local_time(client, city, link_id, trained):
    post(client, rows(city, NOW + 20, NOW + 21, [link_id]))
    one = forecast(client, link_id)["forecasts"][0]
    model, _ = load_model(trained[1] / link_id)
    local = datetime.fromisoformat(one["slot_start"]).astimezone(zone_named(city.zone))
    usual = model.profile.at(np.array([local.weekday()]), np.array([local.hour * 4 + local.minute // 15]))
    assert one["expected_count"] == pytest.approx(usual[0], abs=6e-4)
