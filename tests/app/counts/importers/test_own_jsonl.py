import json
from datetime import UTC, datetime

import pytest

from app.core.slots import SlotGrid
from app.counts.importers import Quality
from tests.support.count_files import SlotCount, read_all

SLOT = SlotGrid().number(datetime(2006, 10, 2, 0, 15, tzinfo=UTC))


def row(**changes):
    return json.dumps({"link_id": "Ba", "slot_start": "2006-10-02T10:15:00+10:00", "count": 12} | changes)


def test_a_line_is_one_count():
    counts, reader = read_all(row(), row(quality="suspect"), row(quality=None))
    assert counts[0] == SlotCount("Ba", SLOT, 12, Quality.OBSERVED)
    assert [count.quality for count in counts] == ["observed", "suspect", "observed"]
    assert reader.report.layout == "flowcast-jsonl"
    assert reader.report.rows == 3


def test_null_is_a_declared_gap():
    counts, reader = read_all(row(count=None))
    assert not counts
    assert reader.report.gaps == 1


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (row(count=-1), "count"),
        (row(count=1.5), "count"),
        (row(count=float("nan")), "count"),
        (row(count=True), "count"),
        (row(count="12"), "count"),
        (row(count=2**31), "count"),
        (row(link_id=12), "link_id"),
        (row(link_id="B a"), "link_id"),
        (row(link_id="\ud800"), "link_id"),
        (row(slot_start="2006-10-02T10:15:00"), "slot_start"),
        (row(slot_start=None), "slot_start"),
        (row(quality="guessed"), "quality"),
        (row(qualty="suspect"), "qualty"),
        (row(slot_start=20061002), "slot_start"),
        ('{"link_id": "Ba", "count": 12}', "slot_start"),
        ('{"link_id": "Ba"', "line"),
        ("[1]", "line"),
        ("[" * 60_000, "line"),
        ('{"count": ' + "9" * 5000 + "}", "line"),
    ],
)
def test_a_bad_line_is_refused_by_number_and_field_and_the_rest_is_read(line, field):
    counts, reader = read_all(row(), line, row())
    assert len(counts) == 2
    [refusal] = reader.report.refusals
    assert (refusal.line, refusal.field) == (2, field)


def test_a_first_line_cut_short_is_refused_by_number_too():
    counts, reader = read_all('{"link_id": "Ba", "slot', row())
    assert len(counts) == 1
    assert reader.report.refusals[0].line == 1
