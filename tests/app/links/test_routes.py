import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.core.database import reading
from app.demo.city import links_geojson, sample_city
from app.links.queries import link_boxes, link_keys, upstream_of
from tests.support.databases import on_sqlite
from tests.support.stored import MONDAY, SLOT, put_counts

GEOJSON = "application/geo+json"
LINE = {"type": "LineString", "coordinates": [[7.0, 54.5], [7.01, 54.52, 3.0]]}
TRIANGLE = [[0, 0], [0, 1], [1, 1], [0, 0]]
FARTHEST = [[180.0, 90.0, 100_000.0], [-180.0, -90.0, -12_000.0]]
AT_THE_LIMITS = [
    {"type": "Point", "coordinates": FARTHEST[0]},
    {"type": "MultiPoint", "coordinates": FARTHEST[1:]},
    {"type": "LineString", "coordinates": FARTHEST},
    {"type": "MultiLineString", "coordinates": [FARTHEST]},
    {"type": "Polygon", "coordinates": [TRIANGLE]},
    {"type": "MultiPolygon", "coordinates": [[TRIANGLE]]},
]
BEYOND_THE_LIMITS = {
    "Point": [[180.1, 0], [0, -90.1], [0, 0, 100_001], [0, 0, -12_001]],
    "MultiPoint": [[], [[-180.1, 0]], [[0]]],
    "LineString": [[], [[0, 0]], [[0, 0], [0, 90.1]]],
    "MultiLineString": [[], [[[0, 0]]], [[[0, 0], [180.1, 0]]]],
    "Polygon": [[], [[]], [TRIANGLE[1:]], [[*TRIANGLE[:2], TRIANGLE[0]]], [[*TRIANGLE[:2], [181, 0], TRIANGLE[0]]]],
    "MultiPolygon": [[], [[]], [[TRIANGLE[1:]]], [[[*TRIANGLE[:2], TRIANGLE[0]]]]],
}


def storing_calls(geometry):
    """Return the calls that store a geometry of link A, and the field that has it."""
    feature = {"type": "Feature", "geometry": geometry, "properties": {"link_id": "A", "zone": "UTC"}}
    return [
        ("PUT", "/v1/links/A", {"zone": "UTC", "geometry": geometry}, "geometry"),
        ("PATCH", "/v1/links/A", {"geometry": geometry}, "geometry"),
        ("POST", "/v1/links", {"links": [{"link_id": "A", "geometry": geometry}]}, "links.0.geometry"),
        ("POST", "/v1/links", {"type": "FeatureCollection", "features": [feature]}, "features.0.geometry"),
    ]


def ids(answer):
    return [link["link_id"] for link in answer.json()["links"]]


class TestPutLink:
    def test_a_new_link_is_201_and_takes_defaults(self, client):
        answer = client.put("/v1/links/0970-7", json={"zone": "UTC"})
        assert answer.status_code == 201
        link = answer.json()
        assert link.pop("created_at") == link.pop("updated_at")
        assert link == {
            "link_id": "0970-7",
            "name": "0970-7",
            "zone": "UTC",
            "geometry": None,
            "upstream": [],
            "capacity": None,
            "slot_minutes": 15,
        }

    def test_it_is_replaced_as_a_whole(self, client, put_link):
        put_link("B")
        first = put_link("A", name="Straße 1 🚗", zone="Europe/Berlin", geometry=LINE, upstream=["B"], capacity=1800)
        assert first["geometry"] == LINE
        assert first["upstream"] == ["B"]
        answer = client.put("/v1/links/A", json={"name": "x"})
        assert answer.status_code == 200
        second = answer.json()
        assert (second["name"], second["zone"], second["geometry"], second["upstream"]) == (
            "x",
            "Europe/Berlin",
            None,
            [],
        )
        assert second["capacity"] is None
        assert second["created_at"] == first["created_at"]
        assert second["updated_at"] > first["updated_at"]
        assert client.get("/v1/links/A").json() == second

    def test_the_same_again_changes_nothing(self, put_link):
        fields = {"name": "x", "geometry": LINE, "capacity": 0.5}
        assert put_link("A", **fields) == put_link("A", **fields)

    def test_a_whole_number_may_be_written_as_a_fraction(self, put_link):
        assert put_link("A", slot_minutes=5.0)["slot_minutes"] == 5

    def test_a_refused_zone_is_named_once(self, client):
        (error,) = client.put("/v1/links/A", json={"zone": "Mars/Olympus"}).json()["errors"]
        assert error["reason"] == "must be an IANA name such as Europe/Berlin"

    @pytest.mark.parametrize(
        ("fields", "name"),
        [
            ({"colour": "red"}, "colour"),
            ({"link_id": "A"}, "link_id"),
            ({"name": ""}, "name"),
            ({"name": "a\0b"}, "name"),
            ({"name": "x" * 201}, "name"),
            ({"name": 5}, "name"),
            ({"zone": "Mars/Olympus"}, "zone"),
            ({"zone": "../etc/passwd"}, "zone"),
            ({"zone": ""}, "zone"),
            ({"zone": None}, "zone"),
            ({"slot_minutes": 7}, "slot_minutes"),
            ({"slot_minutes": 0}, "slot_minutes"),
            ({"slot_minutes": "15"}, "slot_minutes"),
            ({"slot_minutes": True}, "slot_minutes"),
            ({"slot_minutes": 10**30}, "slot_minutes"),
            ({"capacity": 0}, "capacity"),
            ({"capacity": -1}, "capacity"),
            ({"capacity": "9"}, "capacity"),
            ({"capacity": 10**400}, "capacity"),
            ({"upstream": ["B", "B"]}, "upstream"),
            ({"upstream": ["no good"]}, "upstream"),
            ({"geometry": {"type": "Circle", "coordinates": [0, 0]}}, "geometry"),
            ({"geometry": {"type": "Point"}}, "geometry"),
            ({"geometry": {"type": "Point", "coordinates": [181, 0]}}, "geometry"),
            ({"geometry": {"type": "Point", "coordinates": [0, 91]}}, "geometry"),
            ({"geometry": {"type": "Point", "coordinates": [0]}}, "geometry"),
            ({"geometry": {"type": "Point", "coordinates": [0, 0, 0, 0]}}, "geometry"),
            ({"geometry": {"type": "Point", "coordinates": ["0", "0"]}}, "geometry"),
            ({"geometry": {"type": "LineString", "coordinates": [[0, 0]]}}, "geometry"),
            ({"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [0, 1], [1, 1], [1, 0]]]}}, "geometry"),
            ({"geometry": {"type": "GeometryCollection", "geometries": []}}, "geometry"),
        ],
    )
    def test_what_breaks_a_rule_is_refused_by_name(self, shared_client, fields, name):
        answer = shared_client.put(
            "/v1/links/A", content=json.dumps(fields), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert any(name in error["field"] for error in answer.json()["errors"])
        assert shared_client.get("/v1/links/A").status_code == 404

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
    def test_numbers_that_are_none_are_refused(self, shared_client, number):
        for body in (
            f'{{"capacity": {number}}}',
            f'{{"geometry": {{"type": "Point", "coordinates": [{number}, 0]}}}}',
        ):
            answer = shared_client.put("/v1/links/A", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == 422

    def test_deep_geometry_is_refused(self, client):
        body = '{"geometry": {"type": "Point", "coordinates": ' + "[" * 500 + "]" * 500 + "}}"
        answer = client.put("/v1/links/A", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422

    @pytest.mark.parametrize("link_id", ["a b", "ä", "x" * 65, "a%00b", "a,b"])
    def test_an_id_that_breaks_the_pattern_is_422(self, shared_client, link_id):
        assert shared_client.put(f"/v1/links/{link_id}", json={"zone": "UTC"}).status_code == 422
        assert shared_client.get(f"/v1/links/{link_id}").status_code == 422

    def test_an_unknown_upstream_link_is_409_by_name(self, client):
        answer = client.put("/v1/links/A", json={"zone": "UTC", "upstream": ["B", "C"]})
        assert answer.status_code == 409
        assert [error["value"] for error in answer.json()["errors"]] == ["B", "C"]
        assert client.get("/v1/links/A").status_code == 404

    def test_the_slot_length_stays_once_there_are_counts(self, client, put_link):
        put_link("A", slot_minutes=15)
        assert put_link("A", slot_minutes=5)["slot_minutes"] == 5
        put_link("A", slot_minutes=15)
        put_counts(client, "A", {MONDAY: 4, MONDAY + SLOT: 5})
        answer = client.put("/v1/links/A", json={"slot_minutes": 5})
        assert answer.status_code == 409
        assert "must stay 15 on a link with counts or models (counts: 2, models: 0)" in answer.json()["detail"]
        assert put_link("A", slot_minutes=15, name="new")["name"] == "new"

    def test_many_at_once_create_it_once(self, client):
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: client.put("/v1/links/A", json={"zone": "UTC"}).status_code, range(8)))
        assert sorted(answers) == [200] * 7 + [201]

    def test_polygons_and_points_are_fine(self, put_link):
        ring = [[0, 0], [0, 1], [1, 1], [0, 0]]
        for geometry in (
            {"type": "Point", "coordinates": [180.0, -90.0]},
            {"type": "MultiPoint", "coordinates": [[0.5, 0.5]]},
            {"type": "MultiLineString", "coordinates": [LINE["coordinates"]]},
            {"type": "Polygon", "coordinates": [ring]},
            {"type": "MultiPolygon", "coordinates": [[ring]]},
        ):
            assert put_link("A", geometry={**geometry, "bbox": [0, 0, 1, 1]})["geometry"] == geometry


class TestGeometry:
    @on_sqlite
    def test_every_kind_is_stored_at_its_limits_by_every_call(self, client):
        client.put("/v1/links/A", json={"zone": "UTC"})
        for geometry in AT_THE_LIMITS:
            for method, path, body, _ in storing_calls(geometry):
                client.patch("/v1/links/A", json={"geometry": None})
                answer = client.request(method, path, json=body)
                assert answer.status_code == 200, (method, body, answer.text)
                assert client.get("/v1/links/A").json()["geometry"] == geometry, (method, body)

    def test_no_kind_is_stored_beyond_its_limits_by_any_call(self, shared_client):
        for kind, beyond in BEYOND_THE_LIMITS.items():
            for coordinates in beyond:
                for method, path, body, field in storing_calls({"type": kind, "coordinates": coordinates}):
                    answer = shared_client.request(method, path, json=body)
                    assert answer.status_code == 422, (method, body)
                    [error] = answer.json()["errors"]
                    assert error["field"].startswith(f"{field}.coordinates"), (method, body, error)


class TestDeleteLink:
    def test_a_link_without_counts_goes(self, client, put_link):
        put_link("A")
        answer = client.delete("/v1/links/A")
        assert (answer.status_code, answer.content) == (204, b"")
        assert not {"content-encoding", "content-type"} & set(answer.headers)
        assert client.get("/v1/links/A").status_code == 404
        assert client.delete("/v1/links/A").status_code == 404

    def test_one_with_counts_only_by_force(self, client, put_link):
        put_link("A")
        put_link("B", upstream=["A"])
        put_counts(client, "A", {MONDAY + i * SLOT: i for i in range(3)})
        answer = client.delete("/v1/links/A")
        assert answer.status_code == 409
        assert "has 3 counts" in answer.json()["detail"]
        assert client.delete("/v1/links/A?force=true").status_code == 204
        assert client.get("/v1/links/B").json()["upstream"] == []
        put_link("A")
        assert client.get("/v1/links/A/counts").json()["counts"] == []


class TestPostLinks:
    def test_created_updated_and_unchanged_are_distinguished(self, client, put_link):
        put_link("A")
        put_link("B")
        links = [
            {"link_id": "A"},
            {"link_id": "B", "name": "b"},
            {"link_id": "C", "zone": "UTC", "upstream": ["D"]},
            {"link_id": "D", "zone": "UTC"},
        ]
        answer = client.post("/v1/links", json={"links": links})
        assert answer.json() == {"created": 2, "updated": 1, "unchanged": 1}
        assert client.get("/v1/links/C").json()["upstream"] == ["D"]
        assert client.post("/v1/links", json={"links": links}).json() == {"created": 0, "updated": 0, "unchanged": 4}
        links[2]["upstream"] = ["A", "B"]
        assert client.post("/v1/links", json={"links": links}).json()["updated"] == 1
        assert client.get("/v1/links/C").json()["upstream"] == ["A", "B"]

    def test_all_or_nothing(self, client):
        for bad, status in [
            ({"link_id": "B", "zone": "Nowhere"}, 422),
            ({"link_id": "B", "upstream": ["B"]}, 409),
            ({"link_id": "B", "upstream": ["Z"]}, 409),
            ({"link_id": "A", "name": "twice"}, 409),
            ({"name": "nameless"}, 422),
        ]:
            assert (
                client.post(
                    "/v1/links", json={"links": [{"link_id": "A", "zone": "UTC"}, {"zone": "UTC"} | bad]}
                ).status_code
                == status
            )
            assert client.get("/v1/links").json() == {"links": [], "next_cursor": None}

    @pytest.mark.parametrize("media_type", [GEOJSON, "application/json"])
    def test_the_sample_city_comes_as_geojson(self, client, media_type):
        collection = links_geojson(sample_city(links=8, days=1))
        answer = client.post("/v1/links", content=json.dumps(collection), headers={"Content-Type": media_type})
        assert answer.json() == {"created": 8, "updated": 0, "unchanged": 0}
        assert client.get("/v1/links/Ba").json()["capacity"] == 1800.0
        out = client.get("/v1/links", headers={"Accept": GEOJSON})
        assert out.headers["content-type"] == GEOJSON
        features = {feature["id"]: feature for feature in out.json()["features"]}
        sent = {feature["id"]: feature for feature in collection["features"]}
        for feature in (*features.values(), *sent.values()):
            feature["properties"]["upstream"].sort()
        assert features == sent
        again = client.post("/v1/links", content=out.content, headers={"Content-Type": GEOJSON})
        assert again.json() == {"created": 0, "updated": 0, "unchanged": 8}

    @pytest.mark.parametrize(
        "body",
        [
            {"type": "FeatureCollection"},
            {"type": "Feature", "geometry": None, "properties": {"link_id": "A"}},
            {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": None, "properties": None}]},
            {
                "type": "FeatureCollection",
                "features": [{"type": "Feature", "properties": {"link_id": "A", "lanes": 2}}],
            },
            {"links": [], "more": 1},
            [],
        ],
    )
    def test_what_is_neither_is_refused(self, shared_client, body):
        assert shared_client.post("/v1/links", json=body).status_code == 422

    def test_a_thousand_links_that_feed_each_other(self, client):
        links = [{"link_id": f"L{i}", "zone": "UTC", "upstream": [f"L{(i + 1) % 1200}"]} for i in range(1200)]
        assert client.post("/v1/links", json={"links": links}).json()["created"] == 1200


class TestGetLinks:
    def test_pages_follow_each_other(self, client):
        client.post("/v1/links", json={"links": [{"link_id": f"L{i}", "zone": "UTC"} for i in range(7)]})
        first = client.get("/v1/links?limit=3")
        second = client.get("/v1/links", params={"limit": 3, "cursor": first.json()["next_cursor"]})
        third = client.get("/v1/links", params={"limit": 3, "cursor": second.json()["next_cursor"]})
        assert ids(first) + ids(second) + ids(third) == [f"L{i}" for i in range(7)]
        assert third.json()["next_cursor"] is None
        geo = client.get("/v1/links?limit=3", headers={"Accept": f"{GEOJSON}, application/json;q=0.5"})
        assert geo.headers["link"] == '<?limit=3&cursor=L2>; rel="next"'

    @pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=a+b", f"limit={10**30}", "cursor="])
    def test_what_breaks_a_rule_is_refused(self, shared_client, query):
        assert shared_client.get(f"/v1/links?{query}").status_code == 422


class TestQueries:
    def test_upstream_and_boxes(self, client, runtime):
        chain = [
            {"link_id": name, "zone": "UTC", "upstream": list(above)}
            for name, above in zip("ABCD", ("BC", "D", "", "A"), strict=True)
        ]
        chain[0]["geometry"] = {"type": "MultiLineString", "coordinates": [[[1, 2], [3, -4]], [[-5, 6], [0, 0]]]}
        client.post("/v1/links", json={"links": chain})
        with reading(runtime.engine) as session:
            keys = link_keys(session, "ABCD")
            assert upstream_of(session, "A") == [keys["B"], keys["C"]]
            assert upstream_of(session, "C") == []
            assert link_boxes(session) == {keys["A"]: (-5, -4, 3, 6)}


class TestQueryParameters:
    @pytest.mark.parametrize(
        "path", ["/v1/links?limt=5", "/v1/links/A?x=1", "/v1/links/A/counts?form=1", "/v1/accuracy?=1", "/v1/health?x"]
    )
    def test_one_that_is_not_known_is_refused_by_name(self, shared_client, path):
        answer = shared_client.get(path)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == path.partition("?")[2].partition("=")[0]
