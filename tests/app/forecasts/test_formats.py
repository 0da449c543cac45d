"""Forecasts as CSV and as GeoJSON hold what JSON holds."""

import csv
import io

import pytest

from app.forecasts.schemas import LINK_COLUMNS, NETWORK_COLUMNS, PAST_COLUMNS
from tests.support.databases import on_sqlite

AS_CSV, AS_GEOJSON = {"Accept": "text/csv"}, {"Accept": "application/geo+json"}
LINE = {"type": "LineString", "coordinates": [[13.0, 52.0], [13.1, 52.1]]}


def rows_of(answer):
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def same(cell: str, value: object) -> bool:
    """Return whether a cell holds a value of JSON."""
    return cell == "" if value is None else (float(cell) == value if isinstance(value, int | float) else cell == value)


def without_age(forecast):
    return {name: value for name, value in forecast.items() if name != "data_age_seconds"}


@pytest.fixture
def link_id(city):
    return next(iter(city.counts))


class TestLink:
    @pytest.mark.parametrize("query", ["", "?horizon=4"])
    def test_csv_has_a_row_for_each_horizon(self, client, link_id, query):
        path = f"/v1/links/{link_id}/forecast{query}"
        rows, forecasts = rows_of(client.get(path, headers=AS_CSV)), client.get(path).json()["forecasts"]
        assert list(rows[0]) == LINK_COLUMNS
        assert len(rows) == len(forecasts)
        for row, forecast in zip(rows, forecasts, strict=True):
            assert row["link_id"] == link_id
            assert all(same(row[name], value) for name, value in forecast.items())

    @on_sqlite
    def test_a_past_slot_can_be_csv_and_an_explanation_cannot(self, client, link_id):
        path = f"/v1/links/{link_id}/forecast"
        newest = client.get(path).json()["forecasts"][0]["as_of_slot"]
        (row,) = rows_of(client.get(path, params={"as_of": newest}, headers=AS_CSV))
        assert row["as_of_slot"] == newest
        answer = client.get(path, params={"explain": True}, headers=AS_CSV)
        assert answer.status_code == 406
        assert answer.json()["detail"] == "Accept='text/csv' is refused; this call returns application/json"
        assert client.get(path, params={"explain": True}).json()["explanation"] is not None

    def test_history_is_paged_by_the_link_header(self, client, link_id):
        path = f"/v1/links/{link_id}/forecasts"
        expected = client.get(path, params={"limit": 10_000}).json()["forecasts"]
        rows, address = [], f"{path}?limit=3"
        while address:
            answer = client.get(address, headers=AS_CSV)
            rows += rows_of(answer)
            following = answer.headers.get("link")
            address = None if following is None else path + following[1:].split(">")[0]
        assert list(rows[0]) == PAST_COLUMNS
        assert len(rows) == len(expected) == 4
        for row, forecast in zip(rows, expected, strict=True):
            assert all(same(row[name], value) for name, value in forecast.items())


class TestNetwork:
    def test_csv_has_a_row_for_each_link_and_horizon(self, client, city, put_link):
        put_link("z-none", zone="UTC")
        rows = rows_of(client.get("/v1/forecasts?horizon=2", headers=AS_CSV))
        links = client.get("/v1/forecasts?horizon=2").json()["links"]
        assert list(rows[0]) == NETWORK_COLUMNS
        assert len(rows) == 2 * len(city.counts) + 1
        expected = [(link, forecast) for link in links for forecast in link["forecasts"] or [{}]]
        for row, (link, forecast) in zip(rows, expected, strict=True):
            assert (row["link_id"], row["status"]) == (link["link_id"], link["status"])
            assert all(same(row[name], value) for name, value in forecast.items())
        assert rows[-1] == dict.fromkeys(NETWORK_COLUMNS, "") | {"link_id": "z-none", "status": "no_counts"}

    def test_geojson_has_a_feature_for_each_link(self, client, city, put_link):
        put_link("z-none", zone="UTC")
        put_link("z-placed", zone="UTC", geometry=LINE)
        answer = client.get("/v1/forecasts?horizon=2", headers=AS_GEOJSON)
        assert answer.headers["content-type"] == "application/geo+json"
        collection, links = answer.json(), client.get("/v1/forecasts?horizon=2").json()["links"]
        assert (collection["type"], collection["stale"]) == ("FeatureCollection", False)
        placed = {link["link_id"]: link["geometry"] for link in client.get("/v1/links").json()["links"]}
        assert placed["z-none"] is None
        assert placed["z-placed"] == LINE
        for feature, link in zip(collection["features"], links, strict=True):
            properties = feature["properties"]
            assert (feature["type"], feature["id"]) == ("Feature", link["link_id"])
            assert feature["geometry"] == placed[link["link_id"]]
            assert list(map(without_age, properties["forecasts"])) == list(map(without_age, link["forecasts"]))
            assert properties["status"] == link["status"]
            if link["forecasts"]:
                assert properties["expected_count"] == link["forecasts"][0]["expected_count"]
            else:
                assert properties["expected_count"] is None

    @on_sqlite
    def test_filters_hold(self, client, city, link_id):
        collection = client.get("/v1/forecasts", params={"links": link_id}, headers=AS_GEOJSON).json()
        assert [feature["id"] for feature in collection["features"]] == [link_id]

    @on_sqlite
    def test_each_media_type_has_a_tag_of_its_own(self, client, city, put_link):
        accepts = ("application/json", "text/csv", "application/geo+json")
        tags = {accept: client.get("/v1/forecasts", headers={"Accept": accept}).headers["etag"] for accept in accepts}
        assert len(set(tags.values())) == 3
        for accept in accepts:
            for other, tag in tags.items():
                answer = client.get("/v1/forecasts", headers={"Accept": accept, "If-None-Match": tag})
                assert answer.status_code == (304 if other == accept else 200)
                assert "Accept" in answer.headers.get_list("vary", split_commas=True)
        link = client.get(f"/v1/links/{next(iter(city.counts))}").json()
        fields = {name: link[name] for name in ("name", "zone", "capacity", "slot_minutes", "upstream")}
        put_link(link["link_id"], **fields, geometry=LINE)  # a road that was moved
        moved = client.get("/v1/forecasts", headers={**AS_GEOJSON, "If-None-Match": tags["application/geo+json"]})
        assert moved.status_code == 200
