from datetime import UTC, date, datetime

import pytest

from app.core.slots import SlotGrid, from_local, zone_named
from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError
from app.counts.importers.scats import place
from app.counts.tables import Quality
from tests.support.count_files import (
    SIGNALS_HEADER,
    SURVEY_HEADER,
    read_all,
    refusals,
    signals_row,
    slot_counts,
    survey_row,
)

GRID = SlotGrid()
MELBOURNE = zone_named("Australia/Melbourne")
SPRING, AUTUMN = date(2006, 10, 29), date(2007, 3, 25)
TRAFFIC = list(range(1, 97))


def zeros(*columns: int) -> list[int]:
    return [0 if column in columns else value for column, value in enumerate(TRAFFIC)]


def at(hour: int, minute: int, day: date = SPRING) -> int:
    return GRID.number(from_local(datetime(day.year, day.month, day.day, hour, minute), MELBOURNE))


class TestSpringDays:
    @pytest.mark.parametrize("first", [7, 8, 9])  # 1:45, 2:00, 2:15
    def test_zeros_as_long_as_the_skipped_hour_and_near_it_are_padding(self, first):
        hole = range(first, first + 4)
        placement = place(zeros(*hole), SPRING, MELBOURNE)
        assert placement.padding == hole
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
        assert not placement.padding
        assert not placement.doubtful
        assert list(placement.slots[8:12]) == [None] * 4  # 2:00 to 2:45
        assert placement.slots[7] == at(1, 45)
        assert placement.slots[12] == at(3, 0)

    def test_in_a_longer_run_the_zeros_beside_the_skipped_hour_are_doubtful(self):
        placement = place(zeros(*range(5, 14)), SPRING, MELBOURNE)
        assert not placement.padding
        assert {7, 12} <= placement.doubtful <= set(range(7, 13))

    def test_half_an_hour_is_skipped_where_the_clocks_skip_half_an_hour(self):
        lord_howe = zone_named("Australia/Lord_Howe")
        placement = place(zeros(8, 9), date(2025, 10, 5), lord_howe)
        assert placement.padding == range(8, 10)
        assert len([slot for slot in placement.slots if slot is not None]) == 94

    def test_a_day_that_a_zone_left_out_has_no_slots_at_all(self):
        placement = place(TRAFFIC, date(2011, 12, 30), zone_named("Pacific/Apia"))
        assert set(placement.slots) == {None}


class TestOtherDays:
    def test_an_ordinary_day_maps_column_by_column_whatever_is_zero(self):
        placement = place(zeros(8, 9, 10, 11), date(2006, 10, 22), MELBOURNE)
        assert list(placement.slots) == list(GRID.local_day(date(2006, 10, 22), MELBOURNE))
        assert not placement.padding

    def test_an_autumn_time_that_comes_twice_is_its_first_occurrence(self):
        placement = place(TRAFFIC, AUTUMN, MELBOURNE)
        real = GRID.local_day(AUTUMN, MELBOURNE)
        assert len(real) == 100
        assert list(placement.slots) == [*real[:12], *real[16:]]  # the second 2:00 to 2:45 are not in the file


class TestSurvey:
    def test_a_row_is_a_day_of_one_link_in_local_time(self):
        counts, reader = read_all(SURVEY_HEADER, survey_row("2/10/2006", TRAFFIC))
        assert [count.count for count in counts] == TRAFFIC
        assert GRID.start(counts[0].slot) == datetime(2006, 10, 1, 14, 0, tzinfo=UTC)  # d/m/y, ten hours ahead
        assert {count.quality for count in counts} == {Quality.OBSERVED}
        link = reader.links["0970-7"]
        assert (link.name, link.zone, link.latitude, link.longitude) == (
            "HIGH ST W of MAIN RD",
            MELBOURNE,
            -37.8,
            145.1,
        )
        assert (reader.report.layout, reader.report.rows, reader.report.values) == ("scats-survey", 1, 96)

    def test_the_zone_can_be_set(self):
        counts, reader = read_all(SURVEY_HEADER, survey_row("2/10/2006", TRAFFIC), zone="Europe/Berlin")
        assert GRID.start(counts[0].slot) == datetime(2006, 10, 1, 22, 0, tzinfo=UTC)
        assert reader.links["0970-7"].zone.key == "Europe/Berlin"

    def test_a_position_of_zero_is_unknown(self):
        row = survey_row("2/10/2006", TRAFFIC).replace("-37.8,145.1", "0,0")
        _, reader = read_all(SURVEY_HEADER, row)
        assert reader.links["0970-7"].latitude is None

    def test_a_cell_that_is_no_count_is_refused_by_column(self):
        cells = [-1, "", "x", "1.5", "NaN", *TRAFFIC[5:]]
        counts, reader = read_all(SURVEY_HEADER, survey_row("2/10/2006", cells))
        assert refusals(reader) == [(2, "0:00", "-1"), (2, "0:30", "x"), (2, "0:45", "1.5"), (2, "1:00", "NaN")]
        assert reader.report.gaps == 1
        assert [count.count for count in counts] == TRAFFIC[5:]

    @pytest.mark.parametrize(
        ("row", "field"),
        [
            (survey_row("10/2006", TRAFFIC), "Start Time"),
            (survey_row("31/9/2006", TRAFFIC), "Start Time"),
            (survey_row("1/10/0206", TRAFFIC), "Start Time"),
            (survey_row("1/10/2006", TRAFFIC, site=""), "SCATS Number"),
            (survey_row("1/10/2006", TRAFFIC, approach="7/8"), "SCATS Number"),
            (survey_row("1/10/2006", TRAFFIC[:-1]), "line"),
            (survey_row("1/10/2006", TRAFFIC, site='"0970'), "line"),
        ],
    )
    def test_a_row_that_cannot_be_placed_is_refused_whole_and_the_next_is_read(self, row, field):
        counts, reader = read_all(SURVEY_HEADER, row, survey_row("2/10/2006", TRAFFIC))
        assert len(counts) == 96
        assert reader.report.refused == 96
        assert [(refusal.line, refusal.field, refusal.values) for refusal in reader.report.refusals] == [(2, field, 96)]

    def test_a_spring_row_with_padding_declares_it_a_gap(self):
        cells = [0 if 7 <= column < 11 else value for column, value in enumerate(TRAFFIC)]
        counts, reader = read_all(SURVEY_HEADER, survey_row("29/10/2006", cells))
        assert (reader.report.counts, reader.report.gaps, reader.report.refused) == (92, 4, 0)
        assert [count.slot for count in counts] == list(GRID.local_day(date(2006, 10, 29), MELBOURNE))
        assert 0 not in [count.count for count in counts]

    def test_skipped_times_of_a_spring_row_without_padding_are_refused(self):
        counts, reader = read_all(SURVEY_HEADER, survey_row("29/10/2006", TRAFFIC))
        assert [count.slot for count in counts] == list(GRID.local_day(date(2006, 10, 29), MELBOURNE))
        assert refusals(reader)[0] == (2, "2006-10-29 2:00", "9")
        assert len(reader.report.refusals) == 4
        assert "exists in Australia/Melbourne: the clocks skip it" in str(reader.report.refusals[0])

    def test_an_autumn_row_leaves_the_second_hour_a_gap(self):
        counts, reader = read_all(SURVEY_HEADER, survey_row("25/3/2007", TRAFFIC))
        real = GRID.local_day(date(2007, 3, 25), MELBOURNE)
        assert len(real) == 100
        assert sorted(set(real) - {count.slot for count in counts}) == list(real[12:16])
        assert reader.report.counts == 96

    def test_shorter_slots_are_refused_and_longer_ones_are_sums(self):
        with pytest.raises(CountFileError, match="slots of 15 minutes, and link 0970-7 has slots of 5"):
            read_all(SURVEY_HEADER, survey_row("2/10/2006", TRAFFIC), grid=SlotGrid(5))
        counts, _ = read_all(SURVEY_HEADER, survey_row("2/10/2006", TRAFFIC), grid=SlotGrid(60))
        assert [count.count for count in counts] == [sum(TRAFFIC[i : i + 4]) for i in range(0, 96, 4)]

    @pytest.mark.journey
    def test_the_real_file_and_its_day_of_23_hours_are_read_by_the_rule(self, real_file):
        with CountReader(real_file) as reader:
            read = list(slot_counts(reader))
        report, quality = reader.report, [count.quality for count in read]
        assert (report.rows, report.values, len(reader.links)) == (2_000, 192_000, 67)
        # 29 October: 55 approaches are padded; nine are not, and one's padding is lost in a longer run of zeros.
        assert (report.gaps, report.refused) == (55 * 4, 10 * 4)
        assert report.counts == len(quality) == 192_000 - 220 - 40
        assert (report.suspect, quality.count(Quality.SUSPECT)) == (1, 1)
        assert {refusal.field for refusal in report.refusals} == {
            f"2006-10-29 2:{minute:02}" for minute in (0, 15, 30, 45)
        }
        day = GRID.local_day(date(2006, 10, 29), MELBOURNE)
        counts = {(count.link_id, count.slot): count for count in read if count.slot in day}
        padded = [counts["0970-1", slot].count for slot in day[4:10]]
        assert padded == [47, 53, 36, 34, 32, 38]  # 1:00 to 1:45, then 3:00: column 2:45 is the true 1:45
        unpadded = [counts["4032-7", slot].count for slot in day[4:10]]
        assert unpadded == [25, 24, 19, 19, 11, 15]  # columns 2:00 to 2:45 are refused
        assert counts["2846-8", day[7]].quality is Quality.SUSPECT
        assert len(counts) == 65 * 92


class TestSignals:
    @pytest.mark.parametrize("day", ["2/10/2006", "02/10/2006", "2006-10-02", "2006-10-02 00:00:00"])
    def test_the_interval_count_is_a_day(self, day):
        counts, reader = read_all(SIGNALS_HEADER, signals_row(day, TRAFFIC))
        assert GRID.start(counts[0].slot) == datetime(2006, 10, 1, 14, 0, tzinfo=UTC)
        assert [count.count for count in counts] == TRAFFIC
        assert reader.report.layout == "scats-signals"
        assert list(reader.links) == ["0100-3"]

    def test_the_layout_is_as_wide_as_published(self):
        assert len(SIGNALS_HEADER.split(",")) == 103

    @pytest.mark.parametrize("negative", [-1, -1022])
    def test_a_negative_cell_is_a_declared_gap_and_never_a_zero(self, negative):
        counts, reader = read_all(SIGNALS_HEADER, signals_row("2006-10-02", [negative, *TRAFFIC[1:]]))
        assert [count.count for count in counts] == TRAFFIC[1:]
        assert (reader.report.gaps, reader.report.refused, reader.report.suspect) == (1, 0, 0)

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            ({"records": 90}, "CT_RECORDS is not 96"),
            ({"records": ""}, "CT_RECORDS is not 96"),
            ({"alarms": 2}, "CT_ALARM_24HOUR is above 0"),
            ({"total": 4657}, "QT_VOLUME_24HOUR differs from the sum of the counts"),
        ],
    )
    def test_an_unsound_row_is_kept_as_suspect_with_its_reason(self, fault, reason):
        rows = [signals_row("2006-10-02", TRAFFIC, **fault), signals_row("2006-10-03", TRAFFIC)]
        counts, reader = read_all(SIGNALS_HEADER, *rows)
        assert [count.quality for count in counts] == [Quality.SUSPECT] * 96 + [Quality.OBSERVED] * 96
        assert reader.report.suspect == 96
        assert reader.report.suspects == {reason: 96}

    @pytest.mark.parametrize("cell", ["x", "3.5", "-0", "--1", "³", "9" * 5000])
    def test_a_cell_that_is_no_number_is_refused_by_column(self, cell):
        row = signals_row("2006-10-02", TRAFFIC).replace(",96,MEL", f",{cell},MEL")
        counts, reader = read_all(SIGNALS_HEADER, row)
        assert len(counts) == 95
        assert [(line, field) for line, field, _ in refusals(reader)] == [(2, "V95")]

    def test_quoted_fields_are_read(self):
        header = ",".join(f'"{name}"' for name in SIGNALS_HEADER.split(","))
        row = signals_row("2006-10-02", TRAFFIC).replace("MEL", '"MEL, EAST"')
        counts, _ = read_all(header, row)
        assert len(counts) == 96

    def test_a_spring_day_follows_the_rule_for_padding(self):
        cells = [0 if 8 <= column < 12 else value for column, value in enumerate(TRAFFIC)]
        counts, reader = read_all(SIGNALS_HEADER, signals_row("2006-10-29", cells))
        assert [count.slot for count in counts] == list(GRID.local_day(date(2006, 10, 29), MELBOURNE))
        assert (reader.report.counts, reader.report.gaps) == (92, 4)
