"""Does the sample city behave as a traffic engineer expects?"""

import numpy as np
import pytest

from app.core.slots import SlotGrid, zone_named
from app.demo.city import MONDAY, City, sample_city
from app.demo.demand import city_calendar, demand_factors
from app.demo.streets import build_street_network
from model.link_model.detector_health import examine
from model.link_model.series import CountSeries


@pytest.fixture(scope="module")
def city() -> City:
    return sample_city(links=60, days=28, seed=1)


def quiet_links(city: City) -> list[str]:
    """Return the links without an event of their own."""
    troubled = {event.link_id for event in city.events}
    return [link.link_id for link in city.links if link.link_id not in troubled]


def days_of(city: City, link_id: str, weekdays: set[int]) -> np.ndarray:
    """Return the counts of days by weekday, (n_days, 96); the span starts on a Monday and has no clock change."""
    days = city.counts[link_id].reshape(-1, 96)
    return days[[d for d in range(len(days)) if d % 7 in weekdays]]


def streets(city: City):
    return {street.link_id: street for street in build_street_network(len(city.links)).streets}


class TestProfiles:
    def test_a_working_day_has_a_morning_and_an_evening_peak(self, city):
        for link_id in quiet_links(city):
            profile = np.convolve(days_of(city, link_id, {0, 1, 2, 3}).mean(axis=0), np.ones(5) / 5, "same")
            morning, midday, evening = profile[28:38].max(), profile[44:56].mean(), profile[62:76].max()
            if abs(streets(city)[link_id].inbound) < 0.7:  # the strongly tidal ones have one main peak
                assert min(morning, evening) > 1.1 * midday, link_id
            assert max(morning, evening) > 1.3 * midday, link_id

    def test_the_tide_runs_in_in_the_morning_and_out_in_the_evening(self, city):
        for link_id in quiet_links(city):
            profile = days_of(city, link_id, {0, 1, 2, 3}).mean(axis=0)
            inbound = streets(city)[link_id].inbound
            if abs(inbound) > 0.5:
                assert (profile[28:37].sum() > profile[64:73].sum()) == (inbound > 0), link_id

    def test_the_weekend_rises_later_and_has_no_morning_peak(self, city):
        for link_id in quiet_links(city):
            work, weekend = (days_of(city, link_id, days).mean(axis=0) for days in ({0, 1, 2, 3}, {5, 6}))
            fifth = [int(np.argmax(np.cumsum(p) > 0.2 * p.sum())) for p in (work, weekend)]
            assert fifth[1] >= fifth[0] + 4, link_id  # a fifth of the day's traffic has passed at least an hour later
            assert weekend[28:34].mean() < 0.5 * work[28:34].mean(), link_id

    def test_friday_evening_is_stronger(self, city):
        links = quiet_links(city)
        evening = [sum(days_of(city, i, d)[:, 62:82].mean() for i in links) for d in ({4}, {0, 1, 2, 3})]
        assert evening[0] > 1.05 * evening[1]

    def test_nights_are_quiet(self, city):
        for link_id in quiet_links(city):
            profile = days_of(city, link_id, {0, 1, 2, 3}).mean(axis=0)
            assert profile[6:18].mean() < 0.08 * profile.max(), link_id

    def test_bigger_roads_carry_more(self, city):
        means: dict[str, list[float]] = {}
        for link_id in quiet_links(city):
            means.setdefault(streets(city)[link_id].road_class.name, []).append(city.counts[link_id].mean())
        assert np.mean(means["arterial"]) > 1.5 * np.mean(means["collector"]) > 1.5 * np.mean(means["local"])


class TestNoise:
    def test_scatter_about_the_weekly_mean_is_that_of_restless_real_counts(self, city):
        # The 49 busy approaches of SCATS, October 2006, have 1.3 to 2.6 from the first to the last decile.
        eventful = {(event.first_slot - city.first_slot) // 96 for event in city.events}  # felt by neighbours, too
        quiet_days = [d for d in range(28) if d % 7 < 4 and d not in eventful]
        ratios = []
        for counts in city.counts.values():
            daytime = counts.reshape(28, 96)[quiet_days, 28:80]
            ratios.append(daytime.var(axis=0, ddof=1).mean() / daytime.mean())
        assert 1.2 < np.median(ratios) < 2.6
        assert min(ratios) > 0.9
        assert max(ratios) < 4

    def test_days_are_strong_or_weak_across_the_whole_city(self):
        clock = city_calendar(SlotGrid(), MONDAY, 200, "UTC")
        factors = demand_factors(clock, 10, np.random.default_rng(0)).reshape(200, 96, 10).mean(axis=1)
        correlation = np.corrcoef(factors.T)[np.triu_indices(10, 1)]
        assert 0.3 < correlation.mean() < 0.9
        assert 0.02 < factors.std() < 0.06


class TestNetworkEffects:
    def test_a_link_follows_its_upstream_links_one_slot_later(self, city):
        restless = {}
        for link_id in quiet_links(city):
            counts = city.counts[link_id].reshape(4, 672)
            rest = (counts - counts.mean(axis=0)).ravel()
            restless[link_id] = rest - np.convolve(rest, np.ones(9) / 9, "same")  # leaves what passes quickly
        at_lag: dict[int, list[float]] = {-1: [], 0: [], 1: [], 3: []}
        for link in city.links:
            for feeder in link.upstream:
                if link.link_id in restless and feeder in restless:
                    for lag, values in at_lag.items():
                        down, up = restless[link.link_id][10:-10], np.roll(restless[feeder], lag)[10:-10]
                        values.append(float(np.corrcoef(down, up)[0, 1]))
        mean = {lag: np.mean(values) for lag, values in at_lag.items()}
        assert mean[1] > 0.1
        assert mean[1] > 0.08 + max(mean[-1], mean[0], mean[3])

    @pytest.mark.parametrize("seed", range(3))
    def test_detector_health_finds_the_planted_faults_and_nothing_else(self, seed):
        city = sample_city(seed=seed)
        found = set()
        for link in city.links:
            calendar = city.grid.calendar(city.first_slot, len(city.counts[link.link_id]), zone_named(link.zone))
            series = CountSeries(city.counts[link.link_id], calendar.weekday, calendar.slot_of_day, 96)
            for verdict in examine(series, link.capacity).verdicts:
                found.add((verdict.name, link.link_id, verdict.first, verdict.last))
        planted = {"dead_detector": "dead", "stuck_value": "stuck"}
        faults = [event for event in city.events if event.kind in planted]
        assert len(faults) == 2
        for event in faults:
            first, last = event.first_slot - city.first_slot, event.last_slot - city.first_slot
            assert [one for one in found if one[:2] == (planted[event.kind], event.link_id) and one[2] <= first + 1]
            assert [one for one in found if one[:2] == (planted[event.kind], event.link_id) and one[3] >= last - 1]
        assert {one[:2] for one in found} == {(planted[event.kind], event.link_id) for event in faults}

    @pytest.mark.parametrize("seed", range(3))
    def test_counts_are_whole_never_negative_and_keep_to_the_capacity(self, seed):
        city = sample_city(links=40, days=10, seed=seed)
        for link in city.links:
            counts = city.counts[link.link_id]
            known = counts[~np.isnan(counts)]
            assert (known == np.round(known)).all()
            assert known.min() >= 0
            assert known.max() <= link.capacity

    def test_the_busiest_roads_do_reach_their_capacity(self, city):
        full = [link.link_id for link in city.links if np.nanmax(city.counts[link.link_id]) > 0.97 * link.passes]
        assert len(full) >= 3
