import numpy as np

from app.core.database import reading
from app.counts.queries import counts_between, counts_by_link
from app.counts.stored_series import stored_series
from app.links.queries import all_links, link_or_404
from tests.support.stored import MONDAY, SLOT, put_counts


def series(runtime, first=None, last=None):
    with reading(runtime.engine) as session:
        return stored_series(session, link_or_404(session, "A"), first, last)


class TestStoredSeries:
    def test_a_link_without_counts_has_an_empty_series_or_one_of_gaps(self, runtime, put_link):
        put_link("A")
        assert len(series(runtime)) == 0
        assert len(series(runtime, MONDAY)) == 0
        assert series(runtime, MONDAY, MONDAY + 3 * SLOT).gaps == 4

    def test_gaps_are_nan_and_suspect_counts_stay(self, client, runtime, put_link):
        put_link("A", zone="Europe/Berlin")
        put_counts(client, "A", {MONDAY: 5, MONDAY + 3 * SLOT: 0})
        put_counts(client, "A", {MONDAY + SLOT: 7}, quality="suspect")
        found = series(runtime)
        np.testing.assert_array_equal(found.counts, [5, 7, np.nan, 0])
        assert found.suspect.tolist() == [False, True, False, False]
        assert (found.first, found.zone.key) == (MONDAY // SLOT, "Europe/Berlin")

    def test_bounds_are_kept_and_rounded_inwards(self, client, runtime, put_link):
        put_link("A")
        put_counts(client, "A", {MONDAY + i * SLOT: i for i in range(6)})
        np.testing.assert_array_equal(series(runtime, MONDAY + 1, MONDAY + 3 * SLOT + 1).counts, [1, 2, 3])
        np.testing.assert_array_equal(series(runtime, MONDAY - SLOT, MONDAY).counts, [np.nan, 0])
        np.testing.assert_array_equal(series(runtime, first=MONDAY + 4 * SLOT).counts, [4, 5])
        assert len(series(runtime, MONDAY + 9 * SLOT, MONDAY)) == 0


def test_counts_by_link_are_those_that_are_read_row_by_row(client, runtime, put_link):
    for link_id, minutes in (("A", 15), ("B", 5), ("C", 15)):
        put_link(link_id, slot_minutes=minutes)
    put_counts(client, "A", {MONDAY + i * SLOT: i for i in range(9) if i != 4})
    put_counts(client, "B", {MONDAY + i * 300: 100_000 + i for i in range(-2, 30)}, quality="suspect")
    with reading(runtime.engine) as session:
        keys = [link.link_key for link in all_links(session)]
        found = counts_by_link(session, keys, MONDAY, MONDAY + 6 * SLOT)
        rows = counts_between(session, keys, MONDAY, MONDAY + 6 * SLOT)
    assert found.keys() == set(keys)
    together = np.concatenate([found[key] for key in keys])
    np.testing.assert_array_equal(together[np.lexsort((together[:, 1], together[:, 0]))], rows)
    assert sorted(map(len, found.values())) == [0, 6, 19]
