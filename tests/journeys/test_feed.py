"""Feeds that repeat counts, send them out of order or a week late, and damaged artifacts."""

import json
import random
import shutil
from pathlib import Path

import numpy as np

from app.core.database import open_database, writing
from app.core.slots import zone_named
from app.counts.series import LinkSeries
from app.demo.city import City, links_geojson, sample_city
from app.links.queries import link_or_404
from app.links.tables import folder_name
from app.registry.activate import activate
from app.registry.register import register_model
from app.registry.store import ModelStore
from app.training.link_training import LinkTraining
from app.training.train_links import train_link
from model.artifacts.folder import MANIFEST
from model.link_model.training_plan import TrainingPlan
from tests.support.databases import on_sqlite
from tests.support.services import Service, running_service
from tests.support.stored import select_rows
from tests.support.waiting import wait_until

DAY, WEEK = 96, 7 * 96


def batch(city: City, link_id: str, slots) -> dict:
    starts = [(i, city.grid.start(city.first_slot + i).strftime("%Y-%m-%dT%H:%M:%SZ")) for i in slots]
    return {"counts": [{"link_id": link_id, "slot_start": start, "count": 10 + i % 90} for i, start in starts]}


def post(service: Service, city: City, link_id: str, slots) -> dict:
    status, body = service.request("POST", "/v1/counts", batch(city, link_id, slots))
    assert status == 200, body
    return body


@on_sqlite
def test_a_day_sent_twice_or_late_is_stored_and_forecast_once(database_url, tmp_path):
    city, rng = sample_city(links=3, days=2, seed=4), random.Random(7)
    twice, shuffled, late = sorted(city.counts)
    engine = open_database(database_url)
    with running_service(database_url, tmp_path, "--no-worker") as service:
        assert service.request("POST", "/v1/links", links_geojson(city))[0] == 200

        first = post(service, city, twice, range(DAY))
        again = post(service, city, twice, range(DAY))
        assert (first["stored"], first["forecasts_issued"]) == (DAY, 1)
        assert (again["unchanged"], again["stored"], again["replaced"], again["forecasts_issued"]) == (DAY, 0, 0, 0)

        slots = list(range(DAY))
        rng.shuffle(slots)
        parts = [slots[i : i + 4] for i in range(0, DAY, 4)]
        moved = {max(slots[: i + 4]) for i in range(0, DAY, 4)}
        issued = [post(service, city, shuffled, part)["forecasts_issued"] for part in parts]
        assert sum(issued) == len(moved)  # one for each step forward, none for late counts

        post(service, city, late, range(WEEK, WEEK + DAY))
        body = service.request("GET", f"/v1/links/{late}/forecast?horizon=4")[1]
        report = post(service, city, late, range(DAY))
        assert (report["stored"], report["forecasts_issued"]) == (DAY, 0)
        assert service.request("GET", f"/v1/links/{late}/forecast?horizon=4")[1] == body  # identical bit by bit
        assert post(service, city, late, range(WEEK, WEEK + DAY))["unchanged"] == DAY

    stored = select_rows(
        engine,
        "SELECT link_id, count(*), count(DISTINCT slot_start) FROM counts JOIN links USING (link_key) GROUP BY 1",
    )
    assert sorted(stored) == [(twice, DAY, DAY), (shuffled, DAY, DAY), (late, 2 * DAY, 2 * DAY)]
    assert select_rows(engine, "SELECT count(*) FROM count_corrections") == [(0,)]
    halves = """SELECT 1 FROM forecasts GROUP BY link_key, model_version, slot_start - horizon * 900
                HAVING count(*) <> 4 OR count(DISTINCT issued_at) <> 1"""
    assert select_rows(engine, halves) == []
    engine.dispose()


def flip_one_bit(folder: Path) -> None:
    file = max(folder.glob("*.npy"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut_short(folder: Path) -> None:
    file = max(folder.glob("*.npy"), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:-100])


def make_newer(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format_version": manifest["format_version"] + 1}))


@on_sqlite
def test_a_damaged_artifact_is_named_and_replaced_by_the_last_sound_one(database_url, tmp_path):
    city = sample_city(links=3, days=12, seed=4)
    damage = dict(zip(sorted(city.counts), (flip_one_bit, cut_short, make_newer), strict=True))
    engine, store = open_database(database_url), ModelStore(tmp_path / "models")
    with running_service(database_url, tmp_path, "--no-worker") as service:
        assert service.request("POST", "/v1/links", links_geojson(city))[0] == 200
        for link_id, counts in city.counts.items():
            post(service, city, link_id, range(len(counts)))
            zone, nothing = zone_named(city.zone), np.zeros(len(counts), dtype=np.bool_)
            series = LinkSeries(link_id, city.grid, zone, city.first_slot, counts, nothing)
            for neighbours in (4, 5):
                plan = TrainingPlan(algorithm="KR", lags=4, n_neighbors=neighbours, held_out_days=4)
                (tmp_path / "trained").mkdir()
                assert train_link(LinkTraining(series, plan), tmp_path / "trained").state == "trained"
                with writing(engine) as session:
                    link = link_or_404(session, link_id)
                    version = register_model(session, store, link, tmp_path / "trained" / folder_name(link_id)).version
                    activate(session, store, link, version)
                shutil.rmtree(tmp_path / "trained")
            body = service.request("GET", f"/v1/links/{link_id}/forecast")[1]["forecasts"][0]
            assert (body["model_version"], body["degraded_reason"]) == (2, None)  # loaded, and mapped from disk

        for link_id, do_damage in damage.items():
            do_damage(store.path(f"{folder_name(link_id)}/2"))
            report = post(service, city, link_id, [len(city.counts[link_id])])
            assert report["stored"] == 1
            body = service.request("GET", f"/v1/links/{link_id}/forecast")[1]["forecasts"][0]
            assert (body["method"], body["model_version"]) == ("KR", 1)
            assert "the artifact of version 2 is damaged" in body["degraded_reason"]
            status, problem = service.request(
                "POST", f"/v1/admin/links/{link_id}/models/2/activate", {"reason": "again"}
            )
            assert (status, "its artifact is damaged" in problem["detail"]) == (409, True)
        assert {one["status"] for one in service.request("GET", "/v1/forecasts")[1]["links"]} == {"degraded"}

        def is_degraded() -> bool:  # an answer about readiness is kept for a while
            readiness = service.request("GET", "/readyz")[1]
            return bool(readiness["status"] == "degraded" and readiness["models"]["n_damaged"] == 3)

        wait_until(is_degraded)
        assert service.process.poll() is None
    engine.dispose()
