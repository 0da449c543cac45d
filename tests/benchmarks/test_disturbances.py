from zoneinfo import ZoneInfo

import numpy as np
import pytest

from app.core.slots import SlotGrid
from app.counts.series import LinkSeries
from benchmarks.disturbances import KINDS, disturb

DAYS, TEST_DAY = 12, 4
SLOTS = 96


@pytest.fixture
def links():
    slots = DAYS * SLOTS
    counts = np.full(slots, 100.0)
    counts[5 * SLOTS] = np.nan
    return {
        f"L{number:02}": LinkSeries(
            f"L{number:02}", SlotGrid(15), ZoneInfo("UTC"), 960, counts.copy(), np.zeros(slots, dtype=bool)
        )
        for number in range(20)
    }


FIRST_TEST_SLOT = 960 + TEST_DAY * SLOTS


def test_every_third_scored_link_by_id_has_the_next_kind(links):
    scored = sorted(links, reverse=True)[:17]
    changed, disturbances = disturb(links, scored, FIRST_TEST_SLOT, 1)
    assert list(disturbances) == ["L03", "L06", "L09", "L12", "L15", "L18"]
    assert [one.kind for one in disturbances.values()] == [*KINDS, KINDS[0]]
    for link_id, link in links.items():
        same = np.array_equal(changed[link_id].counts, link.counts, equal_nan=True)
        assert same == (link_id not in disturbances)
        assert not (link.counts != 100.0)[~np.isnan(link.counts)].any()  # those that were given stay


def test_starts_are_drawn_from_the_first_six_test_days_by_the_seed(links):
    rng = np.random.default_rng(3)
    expected = [FIRST_TEST_SLOT + int(rng.integers(6 * SLOTS)) for _ in range(7)]
    disturbances = disturb(links, list(links), FIRST_TEST_SLOT, 3)[1]
    assert [one.slots.start for one in disturbances.values()] == expected
    assert [one.slots.start for one in disturb(links, list(links), FIRST_TEST_SLOT, 4)[1].values()] != expected


def test_kinds_multiply_the_counts_of_their_slots(links):
    changed, disturbances = disturb(links, list(links), FIRST_TEST_SLOT, 1)
    factors = []
    for link_id, disturbance in list(disturbances.items())[:5]:
        slots = range(disturbance.slots.start - 960, disturbance.slots.stop - 960)
        ratio = changed[link_id].counts / links[link_id].counts
        outside = np.delete(ratio, slots)
        assert (outside[~np.isnan(outside)] == 1.0).all()
        inside = ratio[slots]
        factors.append(inside[~np.isnan(inside)])
    half, dead, low, high, flickers = factors
    assert (half == 0.5).all()
    assert disturbances["L00"].slots.stop == 960 + DAYS * SLOTS
    assert (dead == 0.0).all()
    assert (low == 0.3).all()
    assert (high == 1.6).all()
    assert [len(disturbances[name].slots) for name in ("L06", "L09")] == [32, 48]
    assert (flickers[:8] == 0.0).all()
    assert (flickers[8:16] == 1.0).all()


def test_gaps_stay_gaps(links):
    changed, _ = disturb(links, list(links), 960, 1)
    assert all(np.isnan(link.counts[5 * SLOTS]) for link in changed.values())
