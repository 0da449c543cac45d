from datetime import UTC, date, datetime

import pytest

from app.core.slots import SlotGrid, zone_named
from app.counts.importers import CountFileError, Quality, open_counts
from tests.support.count_files import SURVEY_HEADER, read_all, refusals, slot_counts, survey_row

GRID = SlotGrid()
MELBOURNE = zone_named("Australia/Melbourne")
TRAFFIC = list(range(1, 97))


def test_a_row_is_a_day_of_one_link_in_local_time():
    counts, reader = read_all(SURVEY_HEADER, survey_row("2/10/2006", TRAFFIC))
    assert [count.count for count in counts] == TRAFFIC
    assert GRID.start(counts[0].slot) == datetime(2006, 10, 1, 14, 0, tzinfo=UTC)  # d/m/y, ten hours ahead
    assert {count.quality for count in counts} == {Quality.OBSERVED}
    link = reader.links["0970-7"]
    assert (link.name, link.zone, link.latitude, link.longitude) == ("HIGH ST W of MAIN RD", MELBOURNE, -37.8, 145.1)
    assert (reader.report.layout, reader.report.rows, reader.report.values) == ("scats-survey", 1, 96)


def test_the_zone_can_be_set():
    counts, reader = read_all(SURVEY_HEADER, survey_row("2/10/2006", TRAFFIC), zone="Europe/Berlin")
    assert GRID.start(counts[0].slot) == datetime(2006, 10, 1, 22, 0, tzinfo=UTC)
    assert reader.links["0970-7"].zone.key == "Europe/Berlin"


def test_a_position_of_zero_is_unknown():
    row = survey_row("2/10/2006", TRAFFIC).replace("-37.8,145.1", "0,0")
    _, reader = read_all(SURVEY_HEADER, row)
    assert reader.links["0970-7"].latitude is None


def test_a_cell_that_is_no_count_is_refused_by_column():
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
def test_a_row_that_cannot_be_placed_is_refused_whole_and_the_next_is_read(row, field):
    counts, reader = read_all(SURVEY_HEADER, row, survey_row("2/10/2006", TRAFFIC))
    assert len(counts) == 96
    assert reader.report.refused == 96
    assert [(refusal.line, refusal.field, refusal.values) for refusal in reader.report.refusals] == [(2, field, 96)]


def test_a_spring_row_with_padding_declares_it_a_gap():
    cells = [0 if 7 <= column < 11 else value for column, value in enumerate(TRAFFIC)]
    counts, reader = read_all(SURVEY_HEADER, survey_row("29/10/2006", cells))
    assert (reader.report.counts, reader.report.gaps, reader.report.refused) == (92, 4, 0)
    assert [count.slot for count in counts] == list(GRID.local_day(date(2006, 10, 29), MELBOURNE))
    assert 0 not in [count.count for count in counts]


def test_a_spring_row_without_padding_has_its_skipped_times_refused_by_name():
    counts, reader = read_all(SURVEY_HEADER, survey_row("29/10/2006", TRAFFIC))
    assert [count.slot for count in counts] == list(GRID.local_day(date(2006, 10, 29), MELBOURNE))
    assert refusals(reader)[0] == (2, "2006-10-29 2:00", "9")
    assert len(reader.report.refusals) == 4
    assert "exists in Australia/Melbourne: the clocks skip it" in str(reader.report.refusals[0])


def test_an_autumn_row_leaves_the_second_hour_a_gap():
    counts, reader = read_all(SURVEY_HEADER, survey_row("25/3/2007", TRAFFIC))
    real = GRID.local_day(date(2007, 3, 25), MELBOURNE)
    assert len(real) == 100
    assert sorted(set(real) - {count.slot for count in counts}) == list(real[12:16])
    assert reader.report.counts == 96


def test_shorter_slots_are_refused_and_longer_ones_are_sums():
    with pytest.raises(CountFileError, match="slots of 15 minutes, and link 0970-7 has slots of 5"):
        read_all(SURVEY_HEADER, survey_row("2/10/2006", TRAFFIC), grid=SlotGrid(5))
    counts, _ = read_all(SURVEY_HEADER, survey_row("2/10/2006", TRAFFIC), grid=SlotGrid(60))
    assert [count.count for count in counts] == [sum(TRAFFIC[i : i + 4]) for i in range(0, 96, 4)]


@pytest.mark.journey
def test_the_real_file_and_its_day_of_23_hours_are_read_by_the_rule(real_file):
    with open_counts(real_file) as reader:
        read = list(slot_counts(reader))
    report, quality = reader.report, [count.quality for count in read]
    assert (report.rows, report.values, len(reader.links)) == (2_000, 192_000, 67)
    # 29 October: 55 approaches are padded; nine are not, and one's padding is lost in a longer run of zeros.
    assert (report.gaps, report.refused) == (55 * 4, 10 * 4)
    assert report.counts == len(quality) == 192_000 - 220 - 40
    assert (report.suspect, quality.count(Quality.SUSPECT)) == (1, 1)
    assert {refusal.field for refusal in report.refusals} == {f"2006-10-29 2:{minute:02}" for minute in (0, 15, 30, 45)}
    day = GRID.local_day(date(2006, 10, 29), MELBOURNE)
    counts = {(count.link_id, count.slot): count for count in read if count.slot in day}
    padded = [counts["0970-1", slot].count for slot in day[4:10]]
    assert padded == [47, 53, 36, 34, 32, 38]  # 1:00 to 1:45, then 3:00: column 2:45 is the true 1:45
    unpadded = [counts["4032-7", slot].count for slot in day[4:10]]
    assert unpadded == [25, 24, 19, 19, 11, 15]  # columns 2:00 to 2:45 are refused
    assert counts["2846-8", day[7]].quality is Quality.SUSPECT
    assert len(counts) == 65 * 92
