import io
from datetime import UTC, datetime

import numpy as np
import pytest

from app.core.database import reading
from app.core.slots import SlotGrid, zone_named
from app.counts.importers.reader import CountReader
from app.counts.queries import counts_between, counts_by_link
from app.counts.series import LinkSeries, series_of_files, stored_series
from app.links.queries import all_links, link_or_404
from tests.support.stored import MONDAY, SLOT, put_counts

GRID = SlotGrid()
HEADER = "link_id,slot_start,count,quality\n"
FIRST = GRID.number(datetime(2006, 10, 2, 10, 0, tzinfo=UTC))


def reader_of(*rows: str, **settings):
    lines = [f"{link},2006-10-02T{clock}:00Z,{rest}\n" for link, clock, rest in (row.split(" ") for row in rows)]
    return CountReader(io.BytesIO((HEADER + "".join(lines)).encode()), **settings)


class TestSeriesOfFiles:
    def test_a_missing_count_is_a_gap_and_a_zero_is_a_zero(self):
        with reader_of("Ba 10:00 5,", "Ba 10:30 0,", "Ba 11:00 ,", "Ba 11:15 7,suspect") as reader:
            series = series_of_files(reader)["Ba"]
        assert series.first == FIRST
        np.testing.assert_array_equal(series.counts, [5, np.nan, 0, np.nan, np.nan, 7])
        assert series.suspect.tolist() == [False] * 5 + [True]
        assert (len(series), series.gaps, series.slots) == (6, 3, range(FIRST, FIRST + 6))

    def test_rows_may_come_in_any_order_and_links_are_apart(self):
        with reader_of("Cf 10:15 2,", "Ba 10:45 3,", "Cf 10:00 1,") as reader:
            series = series_of_files(reader)
        assert series["Cf"].counts.tolist() == [1, 2]
        assert (series["Ba"].first, series["Ba"].counts.tolist()) == (FIRST + 3, [3])

    def test_a_later_count_replaces_the_earlier_with_its_quality(self):
        with reader_of("Ba 10:00 5,suspect", "Ba 10:15 1,", "Ba 10:00 6,", "Ba 10:00 7,") as reader:
            series = series_of_files(reader)["Ba"]
        assert series.counts.tolist() == [7, 1]
        assert series.suspect.tolist() == [False, False]

    def test_several_files_make_one_series(self):
        with reader_of("Ba 10:00 5,", "Ba 10:15 6,") as one, reader_of("Ba 10:15 7,") as two:
            series = series_of_files(one, two)["Ba"]
        assert series.counts.tolist() == [5, 7]

    def test_files_on_different_grids_are_not_joined(self):
        with reader_of() as one, reader_of(grid=SlotGrid(5)) as two, pytest.raises(ValueError, match="15, 5 minutes"):
            series_of_files(one, two)

    def test_a_link_without_counts_has_no_series(self):
        with reader_of("Ba 10:00 ,") as reader:
            assert series_of_files(reader) == {}

    @pytest.mark.journey
    def test_the_real_file_is_read_whole(self, real_file):
        with CountReader(real_file) as reader:
            series = series_of_files(reader)
        assert len(series) == 67
        assert sum(len(s) - s.gaps for s in series.values()) == reader.report.counts
        assert sum(len(s) == 31 * 96 - 4 for s in series.values()) >= 50  # the month with its short day


class TestLinkSeries:
    def test_its_calendar_is_local_time(self):
        with reader_of("Ba 10:00 5,", "Ba 10:15 6,", zone="Australia/Melbourne") as reader:
            calendar = series_of_files(reader)["Ba"].calendar()
        assert calendar.weekday.tolist() == [0, 0]
        assert calendar.slot_of_day.tolist() == [80, 81]  # 20:00 and 20:15

    def test_counts_and_marks_must_be_alike(self):
        with pytest.raises(ValueError, match=r"link Ba: counts \(2,\) and suspect \(3,\)"):
            LinkSeries("Ba", GRID, zone_named("UTC"), 0, np.zeros(2), np.zeros(3, dtype=bool))


def read_series(runtime, first=None, last=None):
    with reading(runtime.engine) as session:
        return stored_series(session, link_or_404(session, "A"), first, last)


class TestStoredSeries:
    def test_a_link_without_counts_has_an_empty_series_or_one_of_gaps(self, runtime, put_link):
        put_link("A")
        assert len(read_series(runtime)) == 0
        assert len(read_series(runtime, MONDAY)) == 0
        assert read_series(runtime, MONDAY, MONDAY + 3 * SLOT).gaps == 4

    def test_gaps_are_nan_and_suspect_counts_stay(self, client, runtime, put_link):
        put_link("A", zone="Europe/Berlin")
        put_counts(client, "A", {MONDAY: 5, MONDAY + 3 * SLOT: 0})
        put_counts(client, "A", {MONDAY + SLOT: 7}, quality="suspect")
        found = read_series(runtime)
        np.testing.assert_array_equal(found.counts, [5, 7, np.nan, 0])
        assert found.suspect.tolist() == [False, True, False, False]
        assert (found.first, found.zone.key) == (MONDAY // SLOT, "Europe/Berlin")

    def test_bounds_are_kept_and_rounded_inwards(self, client, runtime, put_link):
        put_link("A")
        put_counts(client, "A", {MONDAY + i * SLOT: i for i in range(6)})
        np.testing.assert_array_equal(read_series(runtime, MONDAY + 1, MONDAY + 3 * SLOT + 1).counts, [1, 2, 3])
        np.testing.assert_array_equal(read_series(runtime, MONDAY - SLOT, MONDAY).counts, [np.nan, 0])
        np.testing.assert_array_equal(read_series(runtime, first=MONDAY + 4 * SLOT).counts, [4, 5])
        assert len(read_series(runtime, MONDAY + 9 * SLOT, MONDAY)) == 0


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
