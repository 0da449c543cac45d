import csv
import gzip
import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest

from app.core.slots import SlotGrid, zone_named
from app.demo.city import links_geojson, sample_city, write_csv


def read_counts(path) -> dict[tuple[str, str], int]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    rows = csv.DictReader(text.splitlines())
    counts = {(row["link_id"], row["slot_start"]): int(row["count"]) for row in rows}
    assert rows.fieldnames == ["link_id", "slot_start", "count"]
    assert len(counts) == len(text.splitlines()) - 1  # no slot twice
    return counts


class TestSampleCity:
    def test_the_same_arguments_give_the_same_bits(self):
        one, other = sample_city(8, 10, 5), sample_city(8, 10, 5)
        assert one.links == other.links
        assert one.events == other.events
        assert {k: v.tobytes() for k, v in one.counts.items()} == {k: v.tobytes() for k, v in other.counts.items()}

    def test_another_seed_gives_other_counts_on_the_same_streets(self):
        one, other = sample_city(8, 10, 0), sample_city(8, 10, 1)
        assert one.links == other.links
        assert all((one.counts[i] != other.counts[i]).mean() > 0.5 for i in one.counts)

    def test_more_links_keep_the_ids_of_the_earlier_ones(self):
        few, many = sample_city(7, 2), sample_city(150, 2)
        assert [link.link_id for link in many.links][:7] == [link.link_id for link in few.links]
        assert list(few.counts) == [link.link_id for link in few.links]

    def test_by_default_it_is_four_weeks_of_twelve_links_from_a_monday(self):
        city = sample_city()
        local = city.grid.start(city.first_slot).astimezone(zone_named(city.zone))
        assert (local.weekday(), local.hour, local.minute, local.year) == (0, 0, 0, 2025)
        assert [len(counts) for counts in city.counts.values()] == [28 * 96] * 12
        assert all(c.dtype == np.float64 and c.flags.c_contiguous for c in city.counts.values())

    @pytest.mark.journey
    @pytest.mark.parametrize("minutes", [1, 5, 60, 1440])
    def test_slots_of_other_lengths_carry_their_part_of_the_traffic(self, minutes):
        city = sample_city(6, 3, slot_minutes=minutes)
        quarter_hours = sample_city(6, 3)
        assert len(city.counts["Ba"]) == 3 * 1440 // minutes
        assert city.links[0].capacity == pytest.approx(quarter_hours.links[0].capacity * minutes / 15)
        if minutes < 1440:
            a, b = (np.nansum([c["Cf"], c["Fe"]]) for c in (city.counts, quarter_hours.counts))
            assert a == pytest.approx(b, rel=0.35)  # events strike other links and days

    @pytest.mark.parametrize("zone", ["Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo", "UTC"])
    @pytest.mark.parametrize("minutes", [15, 60, 480])
    def test_any_zone_has_its_own_local_days(self, zone, minutes):
        city = sample_city(4, 6, start=date(2025, 10, 2), zone=zone, slot_minutes=minutes)
        days = [city.grid.local_day(date(2025, 10, d), zone_named(zone)) for d in range(2, 8)]
        assert city.first_slot == days[0].start
        assert {len(counts) for counts in city.counts.values()} == {sum(map(len, days))}
        assert {link.zone for link in city.links} == {zone}

    @pytest.mark.parametrize(
        ("argument", "message"),
        [
            ({"links": 0}, "links=0 is refused; it must be a whole number of at least 1"),
            ({"links": 2.5}, r"links=2\.5 is refused; it must be a whole number of at least 1"),
            ({"days": 0}, "days=0 is refused; it must be a whole number of at least 1"),
            ({"seed": -1}, "seed=-1 is refused; it must be a whole number of at least 0"),
            ({"zone": "Mars/Olympus"}, "'Mars/Olympus' is refused; it must be an IANA name"),
            ({"slot_minutes": 7}, "slot_minutes=7 is refused; it must be a whole number that divides a day"),
        ],
    )
    def test_refuses_a_bad_argument_by_name_value_and_rule(self, argument, message):
        with pytest.raises(ValueError, match=message):
            sample_city(**argument)


class TestClockChanges:
    @pytest.mark.parametrize(("start", "slots"), [(date(2025, 3, 24), -4), (date(2025, 10, 20), 4)])
    def test_the_peaks_stay_in_place_in_local_time(self, start, slots):
        city = sample_city(12, 14, start=start)
        assert len(city.counts["Ba"]) == 14 * 96 + slots
        berlin, grid = zone_named("Europe/Berlin"), SlotGrid()
        troubled = {event.link_id for event in city.events}
        link_id = next(i for i in ("Ba", "Fe", "Gb", "Cf") if i not in troubled)
        peaks = []
        for week in range(2):
            days = [grid.local_day(start + timedelta(days=7 * week + d), berlin) for d in range(5)]
            rows = [slice(day.start - city.first_slot, day.stop - city.first_slot) for day in days]
            morning = np.mean([city.counts[link_id][r][20:48] for r in rows], axis=0)
            peaks.append(float((np.arange(20, 48) * morning**4).sum() / (morning**4).sum()))
        assert peaks[0] == pytest.approx(peaks[1], abs=1.5)  # an hour is 4 slots

    @pytest.mark.parametrize(("day", "slots"), [(date(2025, 3, 30), 92), (date(2025, 10, 26), 100)])
    def test_the_day_itself_has_92_or_100_slots(self, day, slots):
        assert len(sample_city(2, 1, start=day).counts["Ba"]) == slots


class TestWriteCsv:
    @pytest.mark.parametrize("name", ["city.csv", "city.csv.gz"])
    def test_every_count_comes_back_and_gaps_are_absent(self, tmp_path, name):
        city = sample_city(6, 4)
        write_csv(city, tmp_path / name)
        read = read_counts(tmp_path / name)
        assert sum(np.isnan(c).sum() for c in city.counts.values()) > 0
        back = {link_id: np.full(len(c), np.nan) for link_id, c in city.counts.items()}
        for (link_id, slot_start), count in read.items():
            assert slot_start.endswith("Z")
            back[link_id][city.grid.number(datetime.fromisoformat(slot_start)) - city.first_slot] = count
        for link_id, counts in city.counts.items():
            np.testing.assert_array_equal(back[link_id], counts)

    def test_times_are_in_utc_and_in_order(self, tmp_path):
        city = sample_city(1, 1)
        write_csv(city, tmp_path / "city.csv")
        times = [datetime.fromisoformat(slot_start) for _, slot_start in read_counts(tmp_path / "city.csv")]
        assert times[0] == datetime(2025, 8, 31, 22, 0, tzinfo=UTC)
        assert all(b - a == timedelta(minutes=15) for a, b in pairwise(times))

    def test_the_same_city_gives_the_same_file(self, tmp_path):
        for name in ("a.csv.gz", "b.csv.gz"):
            write_csv(sample_city(2, 2), str(tmp_path / name))
        assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


class TestLinksGeojson:
    def test_is_a_feature_collection_of_lines_within_the_bounds_of_the_earth(self):
        city = sample_city(60, 1)
        collection = json.loads(json.dumps(links_geojson(city), allow_nan=False))
        assert collection["type"] == "FeatureCollection"
        assert len(collection["features"]) == 60
        for feature in collection["features"]:
            assert feature["type"] == "Feature"
            assert feature["geometry"]["type"] == "LineString"
            assert len(feature["geometry"]["coordinates"]) >= 2
            for lon, lat in feature["geometry"]["coordinates"]:
                assert 6.5 < lon < 7.5  # longitude first
                assert 54 < lat < 55

    def test_properties_describe_the_link(self):
        city = sample_city(12, 1, slot_minutes=60)
        feature = links_geojson(city)["features"][0]
        assert feature["properties"] == {
            "link_id": "Ba",
            "name": "B to A, arterial",
            "zone": "Europe/Berlin",
            "capacity": 1800.0,
            "slot_minutes": 60,
            "upstream": ["Gb", "Fb"],
        }
