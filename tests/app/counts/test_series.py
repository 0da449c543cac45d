import io
from datetime import UTC, datetime

import numpy as np
import pytest

from app.core.slots import SlotGrid, zone_named
from app.counts.importers import open_counts
from app.counts.series import LinkSeries, gather

GRID = SlotGrid()
HEADER = "link_id,slot_start,count,quality\n"
FIRST = GRID.number(datetime(2006, 10, 2, 10, 0, tzinfo=UTC))


def reader_of(*rows: str, **settings):
    lines = [f"{link},2006-10-02T{clock}:00Z,{rest}\n" for link, clock, rest in (row.split(" ") for row in rows)]
    return open_counts(io.BytesIO((HEADER + "".join(lines)).encode()), **settings)


class TestGather:
    def test_a_missing_count_is_a_gap_and_a_zero_is_a_zero(self):
        with reader_of("Ba 10:00 5,", "Ba 10:30 0,", "Ba 11:00 ,", "Ba 11:15 7,suspect") as reader:
            series = gather(reader)["Ba"]
        assert series.first == FIRST
        np.testing.assert_array_equal(series.counts, [5, np.nan, 0, np.nan, np.nan, 7])
        assert series.suspect.tolist() == [False] * 5 + [True]
        assert (len(series), series.gaps, series.slots) == (6, 3, range(FIRST, FIRST + 6))

    def test_rows_may_come_in_any_order_and_links_are_apart(self):
        with reader_of("Cf 10:15 2,", "Ba 10:45 3,", "Cf 10:00 1,") as reader:
            series = gather(reader)
        assert series["Cf"].counts.tolist() == [1, 2]
        assert (series["Ba"].first, series["Ba"].counts.tolist()) == (FIRST + 3, [3])

    def test_a_later_count_replaces_the_earlier_with_its_quality_and_is_counted(self):
        with reader_of("Ba 10:00 5,suspect", "Ba 10:15 1,", "Ba 10:00 6,", "Ba 10:00 7,") as reader:
            series = gather(reader)["Ba"]
        assert series.counts.tolist() == [7, 1]
        assert series.suspect.tolist() == [False, False]
        assert series.replaced == 2

    def test_several_files_make_one_series(self):
        with reader_of("Ba 10:00 5,", "Ba 10:15 6,") as one, reader_of("Ba 10:15 7,") as two:
            series = gather(one, two)["Ba"]
        assert series.counts.tolist() == [5, 7]
        assert series.replaced == 1

    def test_files_on_different_grids_are_not_joined(self):
        with reader_of() as one, reader_of(grid=SlotGrid(5)) as two, pytest.raises(ValueError, match="15, 5 minutes"):
            gather(one, two)

    def test_a_link_without_counts_has_no_series(self):
        with reader_of("Ba 10:00 ,") as reader:
            assert gather(reader) == {}

    @pytest.mark.journey
    def test_the_real_file_is_gathered_whole(self, real_file):
        with open_counts(real_file) as reader:
            series = gather(reader)
        assert len(series) == 67
        assert sum(len(s) - s.gaps for s in series.values()) == reader.report.counts
        assert sum(s.replaced for s in series.values()) == 0
        assert sum(len(s) == 31 * 96 - 4 for s in series.values()) >= 50  # the month with its short day


class TestLinkSeries:
    def test_its_calendar_is_local_time(self):
        with reader_of("Ba 10:00 5,", "Ba 10:15 6,", zone="Australia/Melbourne") as reader:
            calendar = gather(reader)["Ba"].calendar()
        assert calendar.weekday.tolist() == [0, 0]
        assert calendar.slot_of_day.tolist() == [80, 81]  # 20:00 and 20:15

    def test_counts_and_marks_must_be_alike(self):
        with pytest.raises(ValueError, match=r"link Ba: counts \(2,\) and suspect \(3,\)"):
            LinkSeries("Ba", GRID, zone_named("UTC"), 0, np.zeros(2), np.zeros(3, dtype=bool))
