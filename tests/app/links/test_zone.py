"""A link's zone: required of a new link, kept by a replaced one, and changed on a link with counts by force alone."""

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from tests.support.databases import on_sqlite
from tests.support.services import ADMIN_KEY
from tests.support.stored import MONDAY, SLOT, put_counts, utc
from tests.support.waiting import wait_until

KEY = {"X-API-Key": ADMIN_KEY}
DAY = 96
POINT = {"type": "Point", "coordinates": [13.4, 52.5]}


def days_of_counts(days: int) -> dict[int, int]:
    """Count more from slot to slot, every day alike: a profile of another zone would be far off."""
    return {MONDAY + i * SLOT: 40 + i % DAY for i in range(days * DAY)}


def forecast(client, link_id="A"):
    answer = client.get(f"/v1/links/{link_id}/forecast")
    assert answer.status_code == 200, answer.text
    return answer.json()["forecasts"][0]


class TestNewLink:
    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("PUT", "/v1/links/A", {}),
            ("POST", "/v1/links", {"links": [{"link_id": "B", "zone": "UTC"}, {"link_id": "A"}]}),
            (
                "POST",
                "/v1/links",
                {"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"link_id": "A"}}]},
            ),
        ],
        ids=["one", "many", "GeoJSON"],
    )
    def test_needs_a_zone(self, client, method, path, body):
        answer = client.request(method, path, json=body)
        assert answer.status_code == 422
        problem = answer.json()
        assert "new link 'A'" in problem["detail"]
        (error,) = problem["errors"]
        assert error["field"] in ("zone", "links.1.zone", "features.0.properties.zone")
        assert error["value"] == ""
        assert "FLOWCAST_DEFAULT_ZONE" in error["reason"]
        assert client.get("/v1/links").json()["links"] == []

    @on_sqlite
    def test_takes_the_default_zone_where_there_is_one(self, settings):
        app = create_app(settings.model_copy(update={"default_zone": "Australia/Melbourne"}))
        with TestClient(app, headers=KEY) as client:
            assert client.put("/v1/links/A", json={}).json()["zone"] == "Australia/Melbourne"
            assert client.put("/v1/links/B", json={"zone": "Europe/Berlin"}).json()["zone"] == "Europe/Berlin"
            assert client.put("/v1/links/B", json={"name": "b"}).json()["zone"] == "Europe/Berlin"
            file = "link_id,slot_start,count\nC,2025-09-01T00:00:00Z,4\n"
            assert client.post("/v1/import?create_links=true", content=file).json()["links_created"] == 1
            assert client.get("/v1/links/C").json()["zone"] == "Australia/Melbourne"


@on_sqlite
class TestPatchLink:
    def test_changes_what_is_given_and_leaves_the_rest(self, client, put_link):
        put_link("B")
        fields = {"name": "High St", "zone": "Europe/Berlin", "geometry": POINT, "upstream": ["B"], "capacity": 900.0}
        before = put_link("A", slot_minutes=5, **fields)
        put_counts(client, "A", {MONDAY: 4})
        answer = client.patch("/v1/links/A", json={"name": "High Street"})
        assert answer.status_code == 200
        after = answer.json()
        assert after.pop("updated_at") > before.pop("updated_at")
        assert after == before | {"name": "High Street"}
        merge_patch = {"Content-Type": "application/merge-patch+json"}
        after = client.patch("/v1/links/A", content='{"capacity": null, "geometry": null}', headers=merge_patch).json()
        assert (after["capacity"], after["geometry"], after["upstream"]) == (None, None, ["B"])
        assert client.patch("/v1/links/A", json={"name": None}).json()["name"] == "A"
        assert client.patch("/v1/links/A", json={}).json()["name"] == "A"
        calls = client.get("/v1/admin/audit").json()["calls"]
        assert ("PATCH", "/v1/links/A", 200) in [(call["method"], call["path"], call["status"]) for call in calls]

    @pytest.mark.parametrize(
        "body", [{"zone": None}, {"zone": ""}, {"zone": "Mars/Olympus"}, {"slot_minutes": None}, {"lanes": 2}]
    )
    def test_what_breaks_a_rule_is_refused(self, client, put_link, body):
        before = put_link("A")
        answer = client.patch("/v1/links/A", json=body)
        assert answer.status_code == 422
        assert next(iter(body)) in answer.json()["errors"][0]["field"]
        assert client.get("/v1/links/A").json() == before

    def test_a_link_that_is_not_there_is_404(self, client):
        assert client.patch("/v1/links/A", json={"name": "x"}).status_code == 404


class TestZoneOfALinkWithCounts:
    CHANGES = (
        ("PUT", "/v1/links/A", {"zone": "Asia/Tokyo"}),
        ("PATCH", "/v1/links/A", {"zone": "Asia/Tokyo"}),
        ("POST", "/v1/links", {"links": [{"link_id": "A", "zone": "Asia/Tokyo"}]}),
    )

    @pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=[method for method, _, _ in CHANGES])
    @on_sqlite
    def test_changes_by_force_alone(self, client, put_link, method, path, body):
        put_link("A", zone="Europe/Berlin")
        put_counts(client, "A", {MONDAY: 4})
        answer = client.request(method, path, json=body)
        assert answer.status_code == 409
        (error,) = answer.json()["errors"]
        field = "links.0.zone" if path == "/v1/links" else "zone"
        assert (error["field"], error["value"]) == (field, "Asia/Tokyo")
        assert "must stay 'Europe/Berlin' on a link with counts or models (counts: 1, models: 0)" in error["reason"]
        assert "force=true changes it, retires the models" in error["reason"]
        assert client.get("/v1/links/A").json()["zone"] == "Europe/Berlin"
        assert client.request(method, f"{path}?force=true", json=body).status_code == 200
        assert client.get("/v1/links/A").json()["zone"] == "Asia/Tokyo"

    def test_the_slot_length_changes_by_no_force(self, client, put_link):
        put_link("A")
        put_counts(client, "A", {MONDAY: 4})
        for method in ("PUT", "PATCH"):
            answer = client.request(method, "/v1/links/A?force=true", json={"slot_minutes": 5})
            assert answer.status_code == 409
            assert answer.json()["errors"][0]["field"] == "slot_minutes"

    def test_every_process_forecasts_in_the_new_zone(self, client, settings, put_link):
        put_link("A", zone="UTC")
        put_counts(client, "A", days_of_counts(10))
        with TestClient(create_app(settings), headers=KEY) as other:
            before = forecast(client)
            assert forecast(other)["expected_count"] == before["expected_count"]
            client.patch("/v1/links/A?force=true", json={"zone": "Asia/Tokyo"}).raise_for_status()
            for one in (client, other):  # learnt anew: with the profile of the old zone it would be nine hours off
                wait_until(lambda one=one: forecast(one)["issued_at"] > before["issued_at"])
                assert forecast(one)["expected_count"] == pytest.approx(before["expected_count"], abs=1)
            newest = utc(MONDAY + 10 * DAY * SLOT)
            row = {"link_id": "A", "slot_start": newest, "count": 40}
            other.post("/v1/counts", json={"counts": [row]}).raise_for_status()
            for one in (client, other):
                wait_until(lambda one=one: forecast(one)["as_of_slot"] == newest)
                assert forecast(one)["expected_count"] == pytest.approx(41, abs=1)

    def test_its_models_are_retired_and_not_activated_again(self, client, city):
        link_id = next(iter(city.counts))
        assert forecast(client, link_id)["model_version"] == 1
        client.patch(f"/v1/links/{link_id}?force=true", json={"zone": "Asia/Tokyo"}).raise_for_status()
        one = forecast(client, link_id)
        assert (one["method"], one["model_version"]) == ("profile", None)
        (model,) = client.get(f"/v1/links/{link_id}/models").json()["models"]
        assert model["state"] == "retired"
        assert model["retired_at"] is not None
        answer = client.post(f"/v1/admin/links/{link_id}/models/1/activate")
        assert answer.status_code == 409
        assert "must have been trained in the link's zone, 'Asia/Tokyo'" in answer.json()["detail"]
        client.patch(f"/v1/links/{link_id}?force=true", json={"zone": city.zone}).raise_for_status()
        assert client.post(f"/v1/admin/links/{link_id}/models/1/activate").status_code == 200
        assert forecast(client, link_id)["model_version"] == 1
        history = client.get(f"/v1/admin/links/{link_id}/activations").json()["activations"]
        assert [row["previous_version"] for row in history] == [None, None]
