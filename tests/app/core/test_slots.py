from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.slots import NonexistentTime, SlotGrid, from_local, zone_named

MELBOURNE = zone_named("Australia/Melbourne")
BERLIN = zone_named("Europe/Berlin")


class TestSlotGrid:
    @pytest.mark.parametrize("minutes", [1, 5, 15, 60, 1440])
    def test_any_divisor_of_a_day_is_a_grid(self, minutes):
        assert SlotGrid(minutes).slots_per_day * minutes == 1440

    @pytest.mark.parametrize("minutes", [0, -15, 7, 1441, 2.5, True, "15"])
    def test_refuses_what_does_not_divide_a_day(self, minutes):
        with pytest.raises(ValueError, match=f"slot_minutes={minutes!r} is refused"):
            SlotGrid(minutes)

    @given(st.integers(-10_000_000, 10_000_000))
    def test_numbers_and_starts_are_inverse(self, number):
        grid = SlotGrid()
        assert grid.number(grid.start(number)) == number
        assert grid.containing(grid.start(number) + timedelta(minutes=14, seconds=59)) == number

    def test_an_offset_names_the_same_slot(self):
        there = datetime(2006, 10, 2, 10, 15, tzinfo=timezone(timedelta(hours=10)))
        assert SlotGrid().number(there) == SlotGrid().number(datetime(2006, 10, 2, 0, 15, tzinfo=UTC))

    def test_refuses_a_start_off_the_grid_or_without_offset(self):
        with pytest.raises(ValueError, match=r"00:07:00\+00:00 is refused; it must lie on the grid of 15-minute"):
            SlotGrid().number(datetime(2006, 10, 2, 0, 7, tzinfo=UTC))
        with pytest.raises(ValueError, match="must have an offset"):
            SlotGrid().number(datetime(2006, 10, 2, 0, 15))


class TestCalendar:
    @pytest.mark.parametrize(
        ("zone", "first", "days"),
        [(MELBOURNE, datetime(2006, 10, 27, tzinfo=UTC), 4), (BERLIN, datetime(2025, 10, 24, tzinfo=UTC), 4)],
    )
    @pytest.mark.parametrize("minutes", [5, 15, 60])
    def test_agrees_with_the_clock_slot_by_slot(self, zone, first, days, minutes):
        grid = SlotGrid(minutes)
        number, n = grid.number(first), days * grid.slots_per_day
        calendar = grid.calendar(number, n, zone)
        local = [grid.start(number + i).astimezone(zone) for i in range(n)]
        assert calendar.weekday.tolist() == [t.weekday() for t in local]
        assert calendar.slot_of_day.tolist() == [(60 * t.hour + t.minute) // minutes for t in local]

    def test_the_repeated_hour_is_neither_doubled_nor_merged(self):
        grid = SlotGrid()
        day = grid.local_day(date(2025, 10, 26), BERLIN)
        counts = np.bincount(grid.calendar(day.start, len(day), BERLIN).slot_of_day, minlength=96)
        assert len(day) == 100
        assert counts[8:12].tolist() == [2] * 4  # 2:00 to 2:45 come twice
        assert counts.sum() == 100

    @pytest.mark.parametrize(
        ("day", "zone", "slots"),
        [
            (date(2006, 10, 28), MELBOURNE, 96),
            (date(2006, 10, 29), MELBOURNE, 92),
            (date(2007, 3, 25), MELBOURNE, 100),
            (date(2025, 3, 30), BERLIN, 92),
            (date(2025, 10, 26), BERLIN, 100),
            (date(2025, 4, 6), zone_named("Australia/Lord_Howe"), 98),
            (date(2025, 10, 5), zone_named("Australia/Lord_Howe"), 94),
            (date(2018, 11, 4), zone_named("America/Sao_Paulo"), 92),  # the clocks skip midnight itself
            (date(2025, 7, 1), zone_named("Asia/Kathmandu"), 96),
        ],
    )
    def test_days_have_as_many_slots_as_the_clocks_give_them(self, day, zone, slots):
        numbers = SlotGrid().local_day(day, zone)
        assert len(numbers) == slots
        starts = [
            SlotGrid().start(n).astimezone(zone) for n in (numbers[0] - 1, numbers[0], numbers[-1], numbers[-1] + 1)
        ]
        assert [t.date() == day for t in starts] == [False, True, True, False]


class TestFromLocal:
    def test_a_time_that_comes_twice_is_its_first_occurrence(self):
        twice = datetime(2025, 10, 26, 2, 30)
        assert from_local(twice, BERLIN) == datetime(2025, 10, 26, 0, 30, tzinfo=UTC)
        assert from_local(twice.replace(fold=1), BERLIN) == datetime(2025, 10, 26, 1, 30, tzinfo=UTC)

    def test_a_time_that_spring_skips_is_refused_by_name(self):
        with pytest.raises(NonexistentTime, match="2006-10-29T02:15:00 does not exist in Australia/Melbourne"):
            from_local(datetime(2006, 10, 29, 2, 15), MELBOURNE)

    def test_or_becomes_the_instant_of_the_jump(self):
        jump = datetime(2006, 10, 28, 16, 0, tzinfo=UTC)
        assert from_local(datetime(2006, 10, 29, 2, 15), MELBOURNE, or_next=True) == jump


@pytest.mark.parametrize(
    "name",
    ["Mars/Olympus", "localtime", "posixrules", "Factory", "right/Europe/Berlin", "Europe", "../etc/localtime", ""],
)
def test_refuses_what_is_no_zone_by_name(name):
    with pytest.raises(ValueError, match=f"{name!r} is refused; it must be an IANA name"):
        zone_named(name)
