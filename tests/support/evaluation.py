"""Links of the sample city, and unusual ones, for the tests of evaluation."""

from dataclasses import replace
from datetime import date, timedelta

import numpy as np

from app.core.slots import SlotGrid, zone_named
from app.counts.series import LinkSeries
from app.demo.city import sample_city
from app.evaluation.plan import EvaluationPlan

PLAN = EvaluationPlan(train_days=8, test_days=2, lags=12)
MARKUP = "</script><img src=x onerror=alert(1)>\"'&"


def city_links(n: int = 1, days: int = 10) -> list[LinkSeries]:
    city = sample_city(links=n, days=days)
    zone = zone_named(city.zone)
    return [
        LinkSeries(link_id, city.grid, zone, city.first_slot, counts, np.zeros(len(counts), dtype=bool))
        for link_id, counts in city.counts.items()
    ]


def steady_link(link_id: str = "Ba", days: int = 10, start: date = date(2025, 9, 1), zone: str = "UTC") -> LinkSeries:
    """Return a link with a daily wave and seeded noise, from a local midnight on."""
    grid, where = SlotGrid(), zone_named(zone)
    first, end = (grid.local_day(start + timedelta(days=n), where).start for n in (0, days))
    slot = grid.calendar(first, end - first, where).slot_of_day
    noise = np.random.default_rng(7).integers(0, 9, end - first)
    counts = (np.round(60 + 50 * np.sin(2 * np.pi * slot / 96)) + noise).astype(float)
    return LinkSeries(link_id, grid, where, first, counts, np.zeros(len(counts), dtype=bool))


def with_counts(link: LinkSeries, counts: np.ndarray) -> LinkSeries:
    return replace(link, counts=counts)
