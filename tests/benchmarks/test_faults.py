"""The benchmark of faults, in short: every kind of kill once, and nothing is lost."""

import pytest
from rich.console import Console

from benchmarks.faults import PLANNED, run, table

pytestmark = pytest.mark.journey


KILLS = sorted(set(PLANNED))


def test_kills_in_the_middle_lose_nothing_and_double_nothing(tmp_path):
    killer, found, feeds = run(len(KILLS), 3, tmp_path, fsync=False, notes=Console(stderr=True), planned=KILLS)
    assert sorted(killer.landed) == KILLS
    assert (found.lost, found.doubled, found.corrected) == ([], [], [])
    assert not any(found.wrong.values()), found.wrong
    summed = table(killer, found, feeds)
    acknowledged = sum(len(feed.acknowledged) for feed in feeds)
    assert acknowledged > 100
    assert sum(row["acknowledged"] for row in summed) == acknowledged
