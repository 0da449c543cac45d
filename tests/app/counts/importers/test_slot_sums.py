"""The slot length of a file is detected; shorter slots are summed, and what cannot be summed is refused whole."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.slots import SlotGrid
from app.counts.importers.record import CountFileError
from app.counts.importers.slot_sums import SlotStarts
from app.counts.tables import Quality
from tests.support.count_files import read_all, read_bytes, zipped

HEADER = "link_id,slot_start,count,quality"
MIDNIGHT = datetime(2025, 9, 1, tzinfo=UTC)
SLOT = SlotGrid().number(MIDNIGHT)


def row(minute: float, count: object = 1, quality: str = "", link_id: str = "A") -> str:
    return f"{link_id},{(MIDNIGHT + timedelta(minutes=minute)).isoformat()},{count},{quality}"


def rows(*counts: object, step: int = 5) -> list[str]:
    return [row(step * i, count) for i, count in enumerate(counts)]


def length(*minutes: int, usual: int = 15) -> int | None:
    starts = SlotStarts()
    for minute in minutes:
        starts.add(minute)
    return starts.length(usual)


class TestLength:
    def test_is_the_step_between_starts_whatever_is_missing(self):
        assert length(0, 5, 10, 15) == 5
        assert length(0, 15, 45, 75, 105) == 15
        assert length(10, 5, 0, 1435, 1440, 10_000) == 5
        assert length(*(5 * i for i in range(2000) if i % 7 and i % 5)) == 5

    def test_a_few_times_off_the_grid_do_not_shorten_it(self):
        assert length(*range(0, 1440, 5), 301) == 5

    def test_starts_that_do_not_show_it_give_none(self):
        assert length() is None
        assert length(30) is None
        assert length(0, 180) is None  # a slot of three hours, or a gap
        assert length(0, 7, 14) is None

    def test_longer_slots_are_detected_by_more_than_one_step(self):
        assert length(0, 60, 120) == 60
        assert length(600, 2040, 3480) == 1440


class TestSums:
    def test_rows_every_five_minutes_are_summed_into_slots(self):
        counts, reader = read_all(HEADER, *rows(1, 2, 3, 10, 20, 30))
        assert [(count.slot - SLOT, count.count) for count in counts] == [(0, 6), (1, 60)]
        assert (reader.report.rows, reader.report.values) == (6, 2)
        assert reader.report.notes == ["rows of 5 minutes are summed into 2 slots of 15 minutes"]

    @pytest.mark.parametrize("lacking", ["missing", "", "-1"])
    def test_a_slot_that_lacks_a_row_or_its_count_is_a_gap(self, lacking):
        given = rows(1, 2, 3, 10, lacking, 30, 7, 7, 7)
        counts, reader = read_all(HEADER, *(one for one in given if "missing" not in one))
        assert [(count.slot - SLOT, count.count) for count in counts] == [(0, 6), (2, 21)]
        assert reader.report.gaps == 1
        assert "; 1 of them lack a row or its count and are gaps" in reader.report.notes[0]

    def test_rows_in_any_order_and_a_later_row_for_the_same_time_replaces(self):
        given = rows(1, 2, 3)
        counts, reader = read_all(HEADER, given[2], given[0], row(5, 9), given[1])
        assert [count.count for count in counts] == [6]
        assert "; 1 rows are replaced by a later row for the same time" in reader.report.notes[0]

    def test_the_worst_quality_of_the_rows_is_that_of_the_slot(self):
        given = [row(0), row(5, 1, "imputed"), row(10), row(15), row(20, 1, "suspect"), row(25, 1, "imputed")]
        counts, reader = read_all(HEADER, *given)
        assert [count.quality for count in counts] == [Quality.IMPUTED, Quality.SUSPECT]
        assert (reader.report.imputed, reader.report.suspect) == (1, 1)

    def test_a_sum_that_is_too_large_is_refused(self):
        counts, reader = read_all(HEADER, *rows(2**31 - 1, 1, 1, 4, 5, 6))
        assert [count.count for count in counts] == [15]
        assert (reader.report.refused, reader.report.refusals[0].field) == (1, "count")

    def test_each_member_of_an_archive_has_its_own_length(self):
        quarters = "\n".join([HEADER, *rows(4, 5, 6, step=15)])
        fives = "\n".join([HEADER, *(row(1440 + 5 * i) for i in range(6))])
        counts, _ = read_bytes(zipped(a=quarters.encode(), b=fives.encode()))
        assert [(count.slot - SLOT, count.count) for count in counts] == [(0, 4), (1, 5), (2, 6), (96, 3), (97, 3)]

    @pytest.mark.journey
    @given(st.lists(st.integers(0, 50), min_size=6, max_size=60), st.sampled_from([10, 15, 30, 60]), st.data())
    def test_a_count_is_the_sum_of_all_its_rows(self, flows, minutes, data):
        left_out = data.draw(st.sets(st.integers(2, len(flows) - 1), max_size=10))
        given = [one for i, one in enumerate(rows(*flows)) if i not in left_out]
        counts, _ = read_all(HEADER, *given, grid=SlotGrid(minutes))
        n = minutes // 5
        whole = [range(i, i + n) for i in range(0, len(flows) - n + 1, n)]
        assert [count.count for count in counts] == [
            sum(flows[i] for i in slot) for slot in whole if not left_out & set(slot)
        ]


class TestRefusedWhole:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (rows(1, 2, 3, step=60), "has slots of 60 minutes, and link A has slots of 15: counts cannot be split"),
            (rows(1, 2, 3, step=10), "has slots of 10 minutes, which do not add up to the 15 minutes of link A's"),
            ([row(2 + 5 * i) for i in range(6)], r"5-minute slots: one of link A starts at 2025-09-01T00:02Z"),
            ([*rows(*[1] * 30), row(151)], r"5-minute slots: one of link A starts at 2025-09-01T02:31Z"),
            ([*rows(*[1] * 30, step=15), row(7)], r"15-minute slots: one of link A starts at 2025-09-01T00:07Z"),
            ([row(5)], r"15-minute slots: one of link A starts at 2025-09-01T00:05Z"),
            ([row(0), row(15.5)], r"line 3: slot_start='2025-09-01T00:15:30\+00:00' is off the grid"),
        ],
    )
    def test_with_what_was_found_and_what_to_do(self, given, message):
        with pytest.raises(CountFileError, match=message) as refused:
            read_all(HEADER, *given)
        assert "nothing of the file is used" in str(refused.value)
