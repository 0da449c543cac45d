import re
from dataclasses import replace
from math import hypot

import pytest

from app.demo.streets import ORIGIN_LAT, ORIGIN_LON, build_street_network, junction_name

SIZES = [1, 5, 12, 24, 100, 1000]


class TestNames:
    def test_the_first_five_links_are_the_patch_of_the_paper(self):
        assert {s.link_id for s in build_street_network(5).streets} == {"Ba", "Cf", "Fe", "Gb", "Hi"}

    @pytest.mark.parametrize("n", SIZES)
    def test_any_number_of_links_have_ids_of_their_own(self, n):
        ids = [street.link_id for street in build_street_network(n).streets]
        assert len(ids) == len(set(ids)) == n
        assert len({link_id.lower() for link_id in ids}) == n  # also where case is ignored
        assert all(re.fullmatch(r"[A-Z]\d*[a-z]\d*", link_id) and len(link_id) <= 64 for link_id in ids)

    def test_junctions_past_the_alphabet_are_numbered(self):
        assert [junction_name(i) for i in (0, 25, 26, 51, 52, 260)] == ["A", "Z", "A1", "Z1", "A2", "A10"]

    @pytest.mark.journey
    @pytest.mark.parametrize("n", SIZES[:-1])
    def test_a_larger_city_begins_with_the_smaller_one(self, n):
        small, large = build_street_network(n).links("UTC", 15), build_street_network(1000).links("UTC", 15)
        for a, b in zip(small, large, strict=False):
            assert replace(a, upstream=()) == replace(b, upstream=())
            assert set(a.upstream) <= set(b.upstream)


class TestStreets:
    network = build_street_network(300)
    links = network.links("Europe/Berlin", 15)

    def test_geometry_runs_from_junction_to_junction(self):
        places = {}
        for street, link in zip(self.network.streets, self.links, strict=True):
            ends = link.geometry["coordinates"]
            for junction, place in zip((street.tail, street.head), ends, strict=True):
                assert places.setdefault(junction, place) == place
            (ax, ay), (bx, by) = ends
            metres = hypot((bx - ax) * 64_640, (by - ay) * 111_320)  # at 54.5 degrees north
            assert 300 < metres < 750
        assert len({tuple(place) for place in places.values()}) == len(places)

    def test_the_grid_is_irregular_and_lies_around_its_spot(self):
        lons, lats = zip(*(p for link in self.links for p in link.geometry["coordinates"]), strict=True)
        assert abs(sum(lons) / len(lons) - ORIGIN_LON) < 0.02
        assert abs(sum(lats) / len(lats) - ORIGIN_LAT) < 0.02
        assert len(set(lons)) > 50  # a regular grid would have about ten

    def test_upstream_links_end_where_the_link_begins_and_never_turn_back(self):
        by_id = {link.link_id: link for link in self.links}
        for link in self.links:
            start, end = link.geometry["coordinates"]
            assert len(link.upstream) <= 3
            for feeder in link.upstream:
                assert by_id[feeder].geometry["coordinates"][1] == start
                assert by_id[feeder].geometry["coordinates"][0] != end
        assert set(by_id["Ba"].upstream) == {"Gb", "Fb"} | {i for i in by_id if re.fullmatch(r"[^A]\d*b", i)}

    def test_parallel_links_lead_the_same_way_one_block_aside(self):
        ids = [street.link_id for street in self.network.streets]
        beside = {ids[i]: {ids[j] for j in near} for i, near in enumerate(self.network.parallel)}
        assert {"Fe"} <= beside["Ba"] <= {"Fe"} | set(ids[12:])
        assert "Gb" in beside["Cf"]
        assert all(link_id in beside[other] for link_id, others in beside.items() for other in others)

    def test_classes_differ_in_capacity_and_all_occur(self):
        pairs = zip(self.network.streets, self.links, strict=True)
        capacity = {street.road_class.name: link.capacity for street, link in pairs}
        assert capacity["arterial"] > capacity["collector"] > capacity["local"] > 0

    def test_inbound_links_lead_to_the_centre_and_their_way_back_leads_out(self):
        inbound = {street.link_id: street.inbound for street in self.network.streets}
        assert inbound["Fe"] > 0.5 > -0.5 > inbound["Hi"]
        assert inbound["Ef"] == pytest.approx(-inbound["Fe"])
