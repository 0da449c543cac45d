from datetime import UTC, date, datetime

import pytest

from app.core.slots import SlotGrid, zone_named
from app.counts.importers import Quality
from tests.support.count_files import SIGNALS_HEADER, read_all, refusals, signals_row

GRID = SlotGrid()
TRAFFIC = list(range(1, 97))


@pytest.mark.parametrize("day", ["2/10/2006", "02/10/2006", "2006-10-02", "2006-10-02 00:00:00"])
def test_the_interval_count_is_a_day(day):
    counts, reader = read_all(SIGNALS_HEADER, signals_row(day, TRAFFIC))
    assert GRID.start(counts[0].slot) == datetime(2006, 10, 1, 14, 0, tzinfo=UTC)
    assert [count.count for count in counts] == TRAFFIC
    assert reader.report.layout == "scats-signals"
    assert list(reader.links) == ["0100-3"]


def test_the_layout_is_as_wide_as_published():
    assert len(SIGNALS_HEADER.split(",")) == 103


@pytest.mark.parametrize("negative", [-1, -1022])
def test_a_negative_cell_is_a_declared_gap_and_never_a_zero(negative):
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
def test_an_unsound_row_is_kept_as_suspect_with_its_reason(fault, reason):
    rows = [signals_row("2006-10-02", TRAFFIC, **fault), signals_row("2006-10-03", TRAFFIC)]
    counts, reader = read_all(SIGNALS_HEADER, *rows)
    assert [count.quality for count in counts] == [Quality.SUSPECT] * 96 + [Quality.OBSERVED] * 96
    assert reader.report.suspect == 96
    assert reader.report.suspects == {reason: 96}


@pytest.mark.parametrize("cell", ["x", "3.5", "-0", "--1", "³", "9" * 5000])
def test_a_cell_that_is_no_number_is_refused_by_column(cell):
    row = signals_row("2006-10-02", TRAFFIC).replace(",96,MEL", f",{cell},MEL")
    counts, reader = read_all(SIGNALS_HEADER, row)
    assert len(counts) == 95
    assert [(line, field) for line, field, _ in refusals(reader)] == [(2, "V95")]


def test_quoted_fields_are_read():
    header = ",".join(f'"{name}"' for name in SIGNALS_HEADER.split(","))
    row = signals_row("2006-10-02", TRAFFIC).replace("MEL", '"MEL, EAST"')
    counts, _ = read_all(header, row)
    assert len(counts) == 96


def test_a_spring_day_follows_the_rule_for_padding():
    cells = [0 if 8 <= column < 12 else value for column, value in enumerate(TRAFFIC)]
    counts, reader = read_all(SIGNALS_HEADER, signals_row("2006-10-29", cells))
    melbourne = zone_named("Australia/Melbourne")
    assert [count.slot for count in counts] == list(GRID.local_day(date(2006, 10, 29), melbourne))
    assert (reader.report.counts, reader.report.gaps) == (92, 4)
