"""Counts of links side by side: their slots, held-out days, junctions and upstream links."""

from datetime import date

import numpy as np

from app.core.slots import SlotGrid, zone_named
from app.counts.series import LinkSeries
from app.training.aligned_counts import LinkTopology, align_counts, covering_days, junctions

SLOTS = 96
BERLIN = zone_named("Europe/Berlin")


def plain_link(link_id, first, counts, grid=None, zone=BERLIN):
    values = np.asarray(counts, dtype=float)
    return LinkSeries(link_id, grid or SlotGrid(), zone, first, values, np.zeros(len(values), dtype=bool))


def point(longitude, latitude):
    return LinkTopology({"type": "Point", "coordinates": [longitude, latitude]})


def line(*positions):
    return LinkTopology({"type": "LineString", "coordinates": [list(position) for position in positions]})


def test_aligns_links_from_a_local_midnight_and_leaves_suspect_counts_out():
    grid = SlotGrid()
    midnight = grid.local_day(date(2025, 9, 1), BERLIN).start
    one = plain_link("A", midnight + 5, np.arange(100.0) % 7)
    one.suspect[3] = True
    two = plain_link("B", midnight + 40, [*np.arange(50.0) % 5, 9999.0])
    series = align_counts([one, two], {"B": LinkTopology(capacity=100.0)})
    assert (series.first, series.counts.shape) == (midnight, (2, 105))
    assert series.calendar.slot_of_day[0] == 0
    assert np.isnan(series.counts[0, :5]).all()
    assert np.isnan(series.counts[0, 8])  # marked
    assert series.counts[0, 9] == 4.0
    assert np.isnan(series.counts[1, 90])  # above the capacity
    assert np.isnan(series.counts[1, 91:]).all()
    assert series.days == 2


def test_a_day_of_25_hours_is_one_day_and_a_holiday_a_sunday():
    grid = SlotGrid()
    first = grid.local_day(date(2025, 10, 1), BERLIN).start
    link = plain_link("A", first, np.arange(26 * SLOTS + 4.0) % 11)
    series = align_counts([link], {})
    assert (series.holidays, series.days) == ("DE", 26)
    lengths = np.bincount(series.calendar.day - series.calendar.day[0])
    assert lengths[25] == 100  # the clocks go back on 26 October
    assert set(lengths[:25]) == {96}
    third = series.calendar.day == series.calendar.day[0] + 2
    assert set(series.calendar.weekday[third]) == {6}  # 3 October, a Friday
    ordinary = align_counts([link], {}, "off")
    assert set(ordinary.calendar.weekday[third]) == {4}
    # The day has four slots more than others: 7 times 96 slots from its end begin at one o'clock, a week before.
    assert covering_days([plain_link("A", first, link.counts[:-4])], series, 7) == 7
    assert covering_days([plain_link("A", first, link.counts[:-5])], series, 7) == 8


def test_held_out_days_of_links_that_end_within_a_day_are_covered():
    first = SlotGrid().local_day(date(2025, 9, 1), BERLIN).start
    links = [plain_link("A", first, np.ones(10 * SLOTS)), plain_link("B", first, np.ones(9 * SLOTS + 50))]
    series = align_counts(links, {})
    assert covering_days(links[:1], series, 4) == 4
    assert covering_days(links, series, 4) == 5
    silent = plain_link("C", first, np.ones(5 * SLOTS))
    assert covering_days([links[0], silent], series, 4) == 4


def test_links_whose_lines_end_at_the_same_place_share_a_junction():
    topology = {"a-1": line((7.0, 54.0), (7.1, 54.1)), "a-2": line((7.2, 54.0), (7.10001, 54.10001))}
    topology["a-3"] = line((7.1, 54.1), (7.0, 54.0))
    assert junctions(["a-1", "a-2", "a-3"], topology).tolist() == [0, 0, 1]


def test_detectors_of_a_site_share_its_junction_unless_they_lie_far_apart():
    near = {"0970-1": point(145.09159, -37.86703), "0970-3": point(145.09195, -37.86735)}
    assert junctions(["0970-1", "0970-3", "2200-1"], near).tolist() == [0, 0, 1]
    far = {"road-1": point(145.0, -37.8), "road-2": point(145.2, -37.8), "x": point(145.2, -37.8)}
    assert junctions(["road-1", "road-2", "x", "y"], far).tolist() == [0, 1, 1, -1]
    assert junctions(["Ba", "Cf"], {}).tolist() == [-1, -1]


def test_upstream_links_are_places_and_strangers_are_left_out():
    first = SlotGrid().local_day(date(2025, 9, 1), BERLIN).start
    links = [plain_link(link_id, first, np.ones(SLOTS)) for link_id in "AB"]
    series = align_counts(links, {"B": LinkTopology(upstream=("A", "Z"))})
    assert series.upstream == ((), (0,))
