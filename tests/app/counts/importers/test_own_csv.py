from datetime import UTC, datetime

import pytest

from app.counts.importers import CountFileError, ImportedCount, Quality
from app.slots import SlotGrid
from tests.support.count_files import read_all, read_bytes, refusals

HEADER = "link_id,slot_start,count"
SOUND = "Ba,2006-10-02T10:15:00+10:00,12"
SLOT = SlotGrid().number(datetime(2006, 10, 2, 0, 15, tzinfo=UTC))


def test_a_row_is_one_count():
    counts, reader = read_all(HEADER, SOUND)
    assert counts == [ImportedCount("Ba", SLOT, 12, Quality.OBSERVED)]
    assert reader.report.layout == "flowcast-csv"
    assert (reader.links["Ba"].name, reader.links["Ba"].zone) == ("Ba", None)


def test_quality_is_kept_and_columns_may_stand_in_any_order():
    rows = ["12,suspect,Ba,2006-10-02T00:15:00Z", "3,imputed,Ba,2006-10-02 00:30:00z", "4,,Ba,2006-10-02t00:45Z"]
    counts, reader = read_all("count,quality,link_id,slot_start", *rows)
    assert [(count.slot - SLOT, count.quality) for count in counts] == [(0, "suspect"), (1, "imputed"), (2, "observed")]
    assert reader.report.suspect == 1


def test_the_zone_of_the_links_can_be_set():
    _, reader = read_all(HEADER, SOUND, zone="Australia/Melbourne")
    assert reader.links["Ba"].zone.key == "Australia/Melbourne"


def test_an_empty_count_is_a_declared_gap():
    counts, reader = read_all(HEADER, "Ba,2006-10-02T10:15:00+10:00,", SOUND)
    assert len(counts) == 1
    assert reader.report.gaps == 1


@pytest.mark.parametrize(
    ("row", "field", "rule"),
    [
        ("Ba,2006-10-02T10:07:00Z,12", "slot_start", "grid of 15-minute slots"),
        ("Ba,2006-10-02T10:15:00.5Z,12", "slot_start", "grid of 15-minute slots"),
        ("Ba,2006-10-02T10:15:00,12", "slot_start", "must carry an offset"),
        ("Ba,2/10/2006 10:15,12", "slot_start", "RFC 3339"),
        ("Ba,2006-02-30T10:15:00Z,12", "slot_start", "RFC 3339"),
        ("Ba,0206-10-02T10:15:00Z,12", "slot_start", "years 1970 to 2099"),
        ("Ba,,12", "slot_start", "RFC 3339"),
        ("Ba,2006-10-02T10:15:00Z,-1", "count", "whole number from 0"),
        ("Ba,2006-10-02T10:15:00Z,1.5", "count", "whole number from 0"),
        ("Ba,2006-10-02T10:15:00Z,NaN", "count", "whole number from 0"),
        ("Ba,2006-10-02T10:15:00Z,1e3", "count", "whole number from 0"),
        ("Ba,2006-10-02T10:15:00Z,2147483648", "count", "whole number from 0 to 2147483647"),
        ("B a,2006-10-02T10:15:00Z,12", "link_id", "letters, digits"),
        (",2006-10-02T10:15:00Z,12", "link_id", "letters, digits"),
        (f"{'B' * 65},2006-10-02T10:15:00Z,12", "link_id", "1 to 64"),
        ("Ba,2006-10-02T10:15:00Z", "line", "must have 3 fields"),
        ("Ba,2006-10-02T10:15:00Z,12,observed", "line", "must have 3 fields"),
        ('"Ba,2006-10-02T10:15:00Z,12', "line", "each quote closed"),
        ("B" * 70_000, "line", "at most 65536 bytes"),
    ],
)
def test_a_bad_row_is_refused_by_line_field_and_rule_and_the_rest_is_read(row, field, rule):
    counts, reader = read_all(HEADER, SOUND, row, SOUND)
    assert [count.count for count in counts] == [12, 12]
    [refusal] = reader.report.refusals
    assert (refusal.line, refusal.field) == (3, field)
    assert rule in refusal.reason
    assert len(refusal.value) <= 80


def test_an_unknown_quality_is_refused():
    _, reader = read_all(f"{HEADER},quality", f"{SOUND},guessed")
    assert refusals(reader) == [(2, "quality", "guessed")]


def test_a_refused_row_introduces_no_link():
    _, reader = read_all(HEADER, "Ba,2006-10-02T10:15:00Z,-1", "Cf,tomorrow,12")
    assert reader.links == {}


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_byte_order_mark_line_ends_and_blank_lines_make_no_difference(start, end):
    counts, reader = read_bytes(start + end.join([HEADER, "", SOUND, SOUND]).encode())
    assert len(counts) == 2
    assert reader.report.rows == 2


def test_a_line_that_is_not_utf_8_is_refused_by_number():
    counts, reader = read_bytes(f"{HEADER}\n{SOUND}\n".encode() + b"B\xe9," + f"\n{SOUND}\n".encode())
    assert len(counts) == 2
    assert [line for line, _, _ in refusals(reader)] == [3]


def test_other_slot_lengths_have_their_own_grid():
    counts, _ = read_all(HEADER, "Ba,2006-10-02T10:05:00Z,12", grid=SlotGrid(5))
    assert SlotGrid(5).start(counts[0].slot) == datetime(2006, 10, 2, 10, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("link_id,slot_start", "no column 'count'"),
        (f"{HEADER},qualty", "unknown column 'qualty'"),
        (f"{HEADER},count", "the column 'count' twice"),
        (SOUND, "no column 'link_id'"),
    ],
)
def test_a_header_that_is_not_this_layouts_is_refused_when_the_layout_is_named(header, message):
    with pytest.raises(CountFileError, match=message):
        read_all(header, SOUND, layout="flowcast-csv")
