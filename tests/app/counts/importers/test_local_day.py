from datetime import date, datetime

import pytest

from app.core.slots import SlotGrid, from_local, zone_named
from app.counts.importers.local_day import COLUMNS, place

GRID = SlotGrid()
MELBOURNE = zone_named("Australia/Melbourne")
SPRING, AUTUMN = date(2006, 10, 29), date(2007, 3, 25)
TRAFFIC = [column + 1 for column in range(COLUMNS)]


def zeros(*columns: int) -> list[int]:
    return [0 if column in columns else value for column, value in enumerate(TRAFFIC)]


def at(hour: int, minute: int, day: date = SPRING) -> int:
    return GRID.number(from_local(datetime(day.year, day.month, day.day, hour, minute), MELBOURNE))


class TestSpring:
    @pytest.mark.parametrize("first", [7, 8, 9])  # 1:45, 2:00, 2:15
    def test_zeros_as_long_as_the_skipped_hour_and_near_it_are_padding(self, first):
        hole = range(first, first + 4)
        placement = place(zeros(*hole), SPRING, MELBOURNE)
        assert placement.hole == hole
        in_order = [slot for column, slot in enumerate(placement.slots) if column not in hole]
        assert in_order == list(GRID.local_day(SPRING, MELBOURNE))
        assert len(in_order) == 92

    def test_a_column_after_early_padding_is_the_time_before_the_jump(self):
        placement = place(zeros(7, 8, 9, 10), SPRING, MELBOURNE)
        assert placement.slots[11] == at(1, 45)  # column 2:45
        assert placement.slots[12] == at(3, 0)

    @pytest.mark.parametrize("columns", [(), (8, 9, 10), (6, 7, 8, 9), (10, 11, 12, 13), (7, 8, 9, 11)])
    def test_without_such_a_run_columns_go_by_their_local_time(self, columns):
        placement = place(zeros(*columns), SPRING, MELBOURNE)
        assert not placement.hole
        assert not placement.doubtful
        assert list(placement.slots[8:12]) == [None] * 4  # 2:00 to 2:45
        assert placement.slots[7] == at(1, 45)
        assert placement.slots[12] == at(3, 0)

    def test_in_a_longer_run_the_zeros_beside_the_skipped_hour_are_doubtful(self):
        placement = place(zeros(*range(5, 14)), SPRING, MELBOURNE)
        assert not placement.hole
        assert {7, 12} <= placement.doubtful <= set(range(7, 13))

    def test_half_an_hour_is_skipped_where_the_clocks_skip_half_an_hour(self):
        lord_howe = zone_named("Australia/Lord_Howe")
        placement = place(zeros(8, 9), date(2025, 10, 5), lord_howe)
        assert placement.hole == range(8, 10)
        assert len([slot for slot in placement.slots if slot is not None]) == 94

    def test_a_day_that_a_zone_left_out_has_no_slots_at_all(self):
        placement = place(TRAFFIC, date(2011, 12, 30), zone_named("Pacific/Apia"))
        assert set(placement.slots) == {None}


class TestOtherDays:
    def test_an_ordinary_day_maps_column_by_column_whatever_is_zero(self):
        placement = place(zeros(8, 9, 10, 11), date(2006, 10, 22), MELBOURNE)
        assert list(placement.slots) == list(GRID.local_day(date(2006, 10, 22), MELBOURNE))
        assert not placement.hole

    def test_an_autumn_time_that_comes_twice_is_its_first_occurrence(self):
        placement = place(TRAFFIC, AUTUMN, MELBOURNE)
        real = GRID.local_day(AUTUMN, MELBOURNE)
        assert len(real) == 100
        assert list(placement.slots) == [*real[:12], *real[16:]]  # the second 2:00 to 2:45 are not in the file
