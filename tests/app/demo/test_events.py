from functools import cache

import numpy as np
import pytest

from app.core.slots import zone_named
from app.demo.city import City, sample_city
from app.demo.events import Event

city_of = cache(sample_city)  # tests only read it
KINDS = {"roadworks", "incident", "dead_detector", "gap", "stuck_value"}


def event_of(city: City, kind: str) -> Event:
    return next(event for event in city.events if event.kind == kind)


def rows_of(city: City, event: Event) -> slice:
    return slice(event.first_slot - city.first_slot, event.last_slot - city.first_slot + 1)


def usual(city: City, link_id: str, rows: slice) -> float:
    """Return the mean count of the same slots on the other working days."""
    days = city.counts[link_id].reshape(-1, 96)
    today = rows.start // 96
    others = [d for d in range(len(days)) if d % 7 < 5 and d != today]
    return float(np.nanmean(days[others, rows.start % 96 : (rows.stop - 1) % 96 + 1]))


class TestPlan:
    @pytest.mark.parametrize(("links", "days", "seed"), [(12, 28, 0), (6, 25, 1), (100, 12, 2), (12, 5, 3)])
    def test_every_kind_occurs_once_inside_the_span(self, links, days, seed):
        city = city_of(links, days, seed)
        assert {event.kind for event in city.events} == KINDS
        assert len(city.events) == len(KINDS)
        assert city.left_out == ()
        last = city.first_slot + days * 96 - 1
        for event in city.events:
            assert city.first_slot <= event.first_slot <= event.last_slot <= last
            assert event.link_id in city.counts
            assert event.description

    @pytest.mark.parametrize(("seed", "days"), [(seed, days) for seed in range(5) for days in (10, 14)])
    def test_the_last_three_days_are_free_of_events(self, seed, days):
        city = city_of(6, days, seed)
        assert max(event.last_slot for event in city.events) < city.first_slot + (days - 3) * 96

    @pytest.mark.parametrize(
        ("links", "days", "left_out"),
        [
            (1, 1, {"roadworks", "dead_detector", "gap", "stuck_value"}),
            (1, 28, {"roadworks", "stuck_value"}),
            (2, 28, {"roadworks", "stuck_value"}),
            (3, 28, {"stuck_value"}),
            (6, 1, set()),
        ],
    )
    def test_a_small_city_lists_the_events_that_do_not_fit(self, links, days, left_out):
        city = city_of(links, days)
        assert set(city.left_out) == left_out
        assert {event.kind for event in city.events} == KINDS - left_out

    def test_no_link_has_two_events_on_a_day(self):
        city = city_of(1, 3)
        days = [(event.first_slot - city.first_slot) // 96 for event in city.events]
        assert len(days) == len(set(days)) == 3


@pytest.mark.parametrize("seed", range(2))
class TestEffects:
    def test_a_dead_detector_counts_zero_for_hours_of_daytime(self, seed):
        city = city_of(12, 28, seed)
        event = event_of(city, "dead_detector")
        rows = rows_of(city, event)
        assert (city.counts[event.link_id][rows] == 0).all()
        assert rows.stop - rows.start == 40
        assert usual(city, event.link_id, rows) > 10
        hours = [city.grid.start(n).astimezone(zone_named(city.zone)).hour for n in (event.first_slot, event.last_slot)]
        assert 7 <= hours[0] < hours[1] < 20

    def test_a_gap_is_nan_and_nothing_else_is(self, seed):
        city = city_of(12, 28, seed)
        event = event_of(city, "gap")
        rows = rows_of(city, event)
        assert np.isnan(city.counts[event.link_id][rows]).all()
        assert sum(int(np.isnan(counts).sum()) for counts in city.counts.values()) == rows.stop - rows.start

    def test_a_stuck_detector_repeats_one_value(self, seed):
        city = city_of(12, 28, seed)
        event = event_of(city, "stuck_value")
        rows = rows_of(city, event)
        values = city.counts[event.link_id][rows]
        assert len(values) == 24
        assert len(set(values.tolist())) == 1
        assert values[0] > 0

    def test_roadworks_send_traffic_to_the_parallel_link(self, seed):
        city = city_of(12, 28, seed)
        event = event_of(city, "roadworks")
        rows = rows_of(city, event)
        link = next(link for link in city.links if link.link_id == event.link_id)
        parallel = event.description.rsplit(" ", 1)[1]
        assert city.counts[event.link_id][rows].max() <= 0.4 * link.passes
        assert city.counts[event.link_id][rows].mean() < 0.7 * usual(city, event.link_id, rows)
        assert city.counts[parallel][rows].mean() > 1.1 * usual(city, parallel, rows)

    def test_an_incident_collapses_the_flow_and_backs_up_upstream(self, seed):
        city = city_of(12, 28, seed)
        event = event_of(city, "incident")
        rows = rows_of(city, event)
        assert rows.stop - rows.start == 4
        link = next(link for link in city.links if link.link_id == event.link_id)
        during, after = city.counts[event.link_id][rows], city.counts[event.link_id][rows.stop]
        assert during.max() <= 0.15 * link.passes
        assert after > 0.9 * link.passes
        assert after > usual(city, event.link_id, slice(rows.stop, rows.stop + 1))
        late = slice(rows.start + 2, rows.stop)
        held = [np.nanmean(city.counts[u][late]) / usual(city, u, late) for u in link.upstream]
        assert min(held) < 0.9
