import json
from datetime import UTC, datetime

import pytest

from app.core.slots import SlotGrid
from app.counts.importers.columns import Columns
from app.counts.importers.record import CountFileError
from app.counts.tables import Quality
from tests.support.count_files import SlotCount, read_all, read_bytes, refusals

HEADER = "link_id,slot_start,count"
SOUND = "Ba,2006-10-02T10:15:00+10:00,12"
SLOT = SlotGrid().number(datetime(2006, 10, 2, 0, 15, tzinfo=UTC))
ROWS = [{"link_id": "Ba", "slot_start": f"2006-10-02T10:{minute}:00Z", "count": 3} for minute in ("00", "15", "30")]


def json_row(**changes):
    return json.dumps({"link_id": "Ba", "slot_start": "2006-10-02T10:15:00+10:00", "count": 12} | changes)


def test_a_row_is_one_count():
    counts, reader = read_all(HEADER, SOUND)
    assert counts == [SlotCount("Ba", SLOT, 12, Quality.OBSERVED)]
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
        ("Ba,2006-10-02T10:15:00,12", "slot_start", "must have an offset"),
        ("Ba,2/10/2006 10:15,12", "slot_start", "RFC 3339"),
        ("Ba,20061002,12", "slot_start", "or seconds since 1970"),
        ("Ba,200610021015,12", "slot_start", "or seconds since 1970"),
        ("Ba,9999999999,12", "slot_start", "years 1970 to 2099"),
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


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_upper_case_and_extra_columns_make_no_difference(delimiter):
    rows = ["Count,SPEED,Link_ID,SLOT_START,", "12,,Ba,2006-10-02T10:15:00+10:00,"]
    counts, reader = read_all(*(row.replace(",", delimiter) for row in rows))
    assert counts == [SlotCount("Ba", SLOT, 12, Quality.OBSERVED)]
    assert reader.report.notes == ["columns that are not read: SPEED"]


@pytest.mark.parametrize("count", ["12", "12.0", "12.", "12.000"])
def test_a_count_may_be_written_as_a_decimal(count):
    counts, _ = read_all(HEADER, f"Ba,2006-10-02T10:15:00+10:00,{count}")
    assert counts[0].count == 12


@pytest.mark.parametrize(
    "start", ["1159748100", "1159748100.0", "1159748100000", "2006-10-02T10:15+10:00", "2006-10-02 00:15:00z"]
)
def test_a_start_may_be_seconds_or_milliseconds_since_1970(start):
    counts, _ = read_all(HEADER, f"Ba,{start},12")
    assert counts[0].slot == SLOT


class TestLocalTimes:
    AUTUMN = ("02:30", "02:45", "02:00", "02:15", "02:30", "02:45", "03:00")

    def test_they_are_of_the_zone_that_the_caller_names(self):
        counts, reader = read_all(HEADER, "Ba,2006-10-02T10:15,12", zone="Australia/Brisbane")
        assert counts[0].slot == SLOT
        assert reader.links["Ba"].zone.key == "Australia/Brisbane"

    def test_without_a_zone_they_are_refused_with_what_to_do(self):
        _, reader = read_all(HEADER, "Ba,2006-10-02T10:15,12")
        assert "unless the option zone names the zone of local times" in reader.report.refusals[0].reason

    def test_a_skipped_one_is_refused_by_name(self):
        _, reader = read_all(HEADER, "Ba,2006-03-26T02:15,12", zone="Europe/Berlin")
        assert "the clocks skip it" in reader.report.refusals[0].reason

    def test_a_repeated_hour_is_its_first_and_then_its_second_occurrence(self):
        rows = [f"Ba,2006-10-29 {clock},{i}" for i, clock in enumerate(self.AUTUMN)]
        counts, _ = read_all(HEADER, *rows, zone="Europe/Berlin")
        first = SlotGrid().number(datetime(2006, 10, 29, 0, 30, tzinfo=UTC))
        assert [(count.slot - first, count.count) for count in counts] == [(i, i) for i in range(7)]


class TestColumns:
    def test_a_map_reads_other_columns(self):
        columns = Columns.parse("link_id=Detector, slot_start=Time ,count=Vol")
        counts, reader = read_all("time;DETECTOR;Lane;Vol", "2006-10-02T00:15Z;Ba;2;12", columns=columns)
        assert counts == [SlotCount("Ba", SLOT, 12, Quality.OBSERVED)]
        assert reader.report.layout == "flowcast-csv"

    def test_a_map_names_a_quality_and_columns_with_commas_too(self):
        columns = Columns.parse('slot_start=Time,"count=Vol, all",quality=Flag')
        header = 'LINK_ID,Time,"Vol, all",Flag'
        counts, _ = read_all(header, "Ba,2006-10-02T00:15Z,12,Imputed", columns=columns)
        assert counts[0].quality is Quality.IMPUTED

    def test_the_only_link_may_be_named(self):
        columns = Columns.parse(None, "A7")
        counts, _ = read_all("slot_start,count", "2006-10-02T00:15Z,12", columns=columns)
        assert counts[0].link_id == "A7"

    @pytest.mark.parametrize(
        ("text", "link", "header", "message"),
        [
            ("count=Vol", None, HEADER, "has no column 'Vol' among 'link_id', 'slot_start', 'count'"),
            ("count=VOL", None, "link_id,slot_start,Vol,vol", "has the column 'VOL' twice"),
            (None, "A7", HEADER, "has a column 'link_id', so the option link must be left out"),
            ("count=Vol", None, "SCATS Number,Vol", "has no column 'link_id' among 'SCATS Number', 'Vol'"),
        ],
    )
    def test_what_is_not_certain_is_refused(self, text, link, header, message):
        with pytest.raises(CountFileError, match=message):
            read_all(header, SOUND, columns=Columns.parse(text, link))

    @pytest.mark.parametrize(
        ("text", "link", "message"),
        [
            ("", None, "map='' is refused; it must give a column to link_id, slot_start, count, quality"),
            ("count", None, "as in link_id=Detector,slot_start=Time,count=Vol"),
            ("vehicles=Vol", None, "it must give a column to"),
            ("count=A,count=B", None, "it must give a column to"),
            ("link_id=Detector", "A7", "link='A7' is refused; it must be left out where the map names a column"),
            ('"count=Vol', None, "it must give a column to"),
            (None, "A 7", "link='A 7' is refused; it must be 1 to 64 letters"),
        ],
    )
    def test_options_that_are_none_are_refused(self, text, link, message):
        with pytest.raises(ValueError, match=message):
            Columns.parse(text, link)

    def test_layouts_with_columns_of_their_own_are_not_mapped(self):
        with pytest.raises(CountFileError, match="is refused with map or link, which only flowcast-csv"):
            read_all(HEADER, layout="pems-5min", columns=Columns.parse("count=Vol"))


def test_other_slot_lengths_have_their_own_grid():
    counts, _ = read_all(HEADER, "Ba,2006-10-02T10:05:00Z,12", grid=SlotGrid(5))
    assert SlotGrid(5).start(counts[0].slot) == datetime(2006, 10, 2, 10, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("link_id,slot_start", "no column 'count' among 'link_id', 'slot_start'; the option map names another"),
        (f"{HEADER},qualty", "unknown column 'qualty'; rename it if it is 'quality'"),
        (f"{HEADER},count", "the column 'count' twice"),
        (SOUND, "no column 'link_id'"),
    ],
)
def test_another_header_is_refused_when_the_layout_is_named(header, message):
    with pytest.raises(CountFileError, match=message):
        read_all(header, SOUND, layout="flowcast-csv")


class TestJsonLines:
    def test_a_line_is_one_count(self):
        counts, reader = read_all(json_row(), json_row(quality="suspect"), json_row(quality=None))
        assert counts[0] == SlotCount("Ba", SLOT, 12, Quality.OBSERVED)
        assert [count.quality for count in counts] == ["observed", "suspect", "observed"]
        assert reader.report.layout == "flowcast-jsonl"
        assert reader.report.rows == 3

    def test_null_is_a_declared_gap(self):
        counts, reader = read_all(json_row(count=None))
        assert not counts
        assert reader.report.gaps == 1

    @pytest.mark.parametrize(
        ("line", "field"),
        [
            (json_row(count=-1), "count"),
            (json_row(count=1.5), "count"),
            (json_row(count=float("nan")), "count"),
            (json_row(count=True), "count"),
            (json_row(count="12"), "count"),
            (json_row(count=2**31), "count"),
            (json_row(link_id=12), "link_id"),
            (json_row(link_id="B a"), "link_id"),
            (json_row(link_id="\ud800"), "link_id"),
            (json_row(slot_start="2006-10-02T10:15:00"), "slot_start"),
            (json_row(slot_start=None), "slot_start"),
            (json_row(quality="guessed"), "quality"),
            (json_row(qualty="suspect"), "qualty"),
            (json_row(slot_start=20061002), "slot_start"),
            ('{"link_id": "Ba", "count": 12}', "slot_start"),
            ('{"link_id": "Ba"', "line"),
            ("[1]", "line"),
            ("[" * 60_000, "line"),
            ('{"count": ' + "9" * 5000 + "}", "line"),
        ],
    )
    def test_a_bad_line_is_refused_by_number_and_field_and_the_rest_is_read(self, line, field):
        counts, reader = read_all(json_row(), line, json_row())
        assert len(counts) == 2
        [refusal] = reader.report.refusals
        assert (refusal.line, refusal.field) == (2, field)

    def test_a_first_line_cut_short_is_refused_by_number_too(self):
        counts, reader = read_all('{"link_id": "Ba", "slot', json_row())
        assert len(counts) == 1
        assert reader.report.refusals[0].line == 1


class TestJson:
    @pytest.mark.parametrize("document", [ROWS, {"counts": ROWS}])
    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_list_and_an_object_with_a_list_are_read_on_one_line_or_many(self, document, indent):
        counts, reader = read_bytes(json.dumps(document, indent=indent).encode())
        assert [count.count for count in counts] == [3, 3, 3]
        assert (reader.report.layout, reader.report.refused) == ("flowcast-json", 0)

    def test_keys_in_upper_case_and_others_make_no_difference(self):
        rows = [{"LINK_ID": "Ba", "Slot_Start": 1159748100, "count": 12.0, "speed": 61.5}]
        counts, reader = read_all(json.dumps(rows))
        assert [count.count for count in counts] == [12]
        assert reader.report.notes == ["columns that are not read: speed"]

    def test_other_keys_can_be_mapped_and_the_link_named(self):
        rows = [{"at": row["slot_start"], "n": row["count"]} for row in ROWS]
        columns = Columns.parse("slot_start=at,count=n", "A7")
        for text in (json.dumps(rows), "\n".join(map(json.dumps, rows))):
            counts, _ = read_all(text, columns=columns)
            assert [(count.link_id, count.count) for count in counts] == [("A7", 3)] * 3

    def test_a_bad_row_is_refused_by_its_place_and_the_rest_is_read(self):
        rows = [ROWS[0], ROWS[1] | {"count": -1}, ROWS[2]]
        counts, reader = read_all(json.dumps(rows, indent=2))
        assert len(counts) == 2
        assert refusals(reader) == [(7, "counts[1] count", "-1")]

    def test_an_empty_list_has_no_counts(self):
        assert read_all("[]")[0] == []

    def test_a_document_without_the_list_is_refused(self):
        with pytest.raises(CountFileError, match="has no list of counts: it must be a JSON list or"):
            read_all('{"counts": 7}')
