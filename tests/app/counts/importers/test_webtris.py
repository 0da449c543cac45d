"""Both forms of WebTRIS' daily report: what they share is tested on both."""

import gzip
import io
import json
import tracemalloc
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.slots import SlotGrid, zone_named
from app.counts.importers.files import LONGEST_LINE
from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError
from tests.support.count_files import (
    WEBTRIS_HEADER,
    SlotCount,
    read_all,
    read_bytes,
    refusals,
    webtris_ends,
    webtris_fields,
    webtris_row,
)

GRID = SlotGrid()
LONDON = zone_named("Europe/London")
DAY = "2019-01-01T00:00:00"
SPRING, AUTUMN = date(2019, 3, 31), date(2019, 10, 27)
ABOUT = {"row_count": 2, "links": [{"rel": "nextPage", "href": "http://x/"}]}


def document(rows: list[dict[str, Any]], **layout: Any) -> str:
    return json.dumps({"Header": ABOUT, "Rows": rows}, **layout)


def as_csv(cells: list[tuple[Any, ...]], **settings: Any) -> tuple[list[SlotCount], CountReader]:
    return read_all(WEBTRIS_HEADER, *(webtris_row(*cell) for cell in cells), **settings)


def as_line(cells: list[tuple[Any, ...]], **settings: Any) -> tuple[list[SlotCount], CountReader]:
    return read_all(document([webtris_fields(*cell) for cell in cells]), **settings)


def as_lines(cells: list[tuple[Any, ...]], **settings: Any) -> tuple[list[SlotCount], CountReader]:
    return read_all(document([webtris_fields(*cell) for cell in cells], indent=2), **settings)


@pytest.fixture(params=[as_csv, as_line, as_lines])
def read(request):
    return request.param


class TestRows:
    def test_a_row_is_named_by_its_end(self, read):
        counts, reader = read([(DAY, "00:14:00", "12"), (DAY, "00:29:00", "0"), (DAY, "23:59:00", "7")])
        starts = [GRID.start(count.slot) for count in counts]
        assert starts == [
            datetime(2019, 1, 1, hour, minute, tzinfo=UTC) for hour, minute in [(0, 0), (0, 15), (23, 45)]
        ]
        assert [count.count for count in counts] == [12, 0, 7]
        assert reader.report.layout.startswith("webtris-daily")
        assert (reader.report.rows, reader.report.values) == (3, 3)

    @pytest.mark.parametrize(
        "day", ["2019-07-02T00:00:00", "2019-07-02", "02/07/2019", "2/7/2019", "02/07/2019 00:00:00"]
    )
    def test_days_are_iso_or_day_first_and_local(self, read, day):
        counts, _ = read([(day, "00:14", "12")])
        assert GRID.start(counts[0].slot) == datetime(2019, 7, 1, 23, tzinfo=UTC)

    def test_the_caller_may_name_another_zone(self, read):
        counts, reader = read([("2019-07-02", "00:14:00", "12")], zone="UTC")
        assert GRID.start(counts[0].slot) == datetime(2019, 7, 2, tzinfo=UTC)
        assert reader.links["M25-4490A"].zone.key == "UTC"

    def test_a_blank_count_is_a_gap_and_never_a_zero(self, read):
        counts, reader = read([(DAY, "00:14:00", ""), (DAY, "00:29:00", "  "), (DAY, "00:44:00", "3")])
        assert [count.count for count in counts] == [3]
        assert (reader.report.gaps, reader.report.refused) == (2, 0)

    @pytest.mark.parametrize("count", ["-1", "-99", "x", "1.5", "null", "³", str(2**31)])
    def test_a_count_that_is_none_is_refused_by_name(self, read, count):
        counts, reader = read([(DAY, "00:14:00", count), (DAY, "00:29:00", "3")])
        assert len(counts) == 1
        [(_, field, value)] = refusals(reader)
        assert field.endswith("Total Volume")
        assert value == count

    @pytest.mark.parametrize("end", ["00:00:00", "00:15:00", "00:13:00", "24:14:00", "00:14:30", "", "14"])
    def test_an_end_that_ends_no_slot_is_refused_by_name(self, read, end):
        _, reader = read([(DAY, end, "3")])
        assert refusals(reader)[0][1].endswith("Time Period Ending")

    @pytest.mark.parametrize("day", ["", "2019-02-30", "01-02-2019", "2019-01-01T00:15:00", "1969-01-01"])
    def test_a_day_that_is_none_is_refused_by_name(self, read, day):
        _, reader = read([(day, "00:14:00", "3")])
        [(_, field, value)] = refusals(reader)
        assert field.endswith("Report Date")
        assert value == day

    def test_rows_may_come_in_any_order(self, read):
        cells = [(DAY, end, str(i)) for i, end in enumerate(webtris_ends())]
        assert set(read(cells)[0]) == set(read(cells[::-1])[0])

    def test_shorter_slots_are_refused_and_longer_ones_are_sums(self, read):
        with pytest.raises(CountFileError, match=r"slots of 15 minutes, and link M25-4490A has slots of 5"):
            read([(DAY, "00:14:00", "3")], grid=SlotGrid(5))
        counts, _ = read([(DAY, end, "3") for end in webtris_ends()], grid=SlotGrid(60))
        assert [count.count for count in counts] == [12] * 24


class TestSites:
    @pytest.mark.parametrize(
        ("site", "link_id"), [("M25/4490A", "M25-4490A"), ("A1(M)", None), ("M4/22 A2", "M4-22_A2")]
    )
    def test_slashes_become_dashes_and_spaces_underscores(self, read, site, link_id):
        _, reader = read([(DAY, "00:14:00", "3", site)])
        assert list(reader.links) == ([link_id] if link_id else [])
        assert reader.report.refused == (link_id is None)
        if link_id:
            assert reader.links[link_id].name == site

    def test_of_two_sites_with_one_link_id_the_second_is_refused(self, read):
        counts, reader = read([(DAY, "00:14:00", "3", "M25/1"), (DAY, "00:14:00", "4", "M25-1")])
        assert [count.count for count in counts] == [3]
        assert reader.report.reasons == {"must not make the link id M25-1, which is that of 'M25/1'": 1}


class TestChangingClocks:
    def test_a_spring_day_has_92_slots_and_gaps_for_the_skipped_hour(self, read):
        cells = [("2019-03-31", end, "" if end.startswith("01:") else str(i)) for i, end in enumerate(webtris_ends())]
        counts, reader = read(cells)
        assert [count.slot for count in counts] == list(GRID.local_day(SPRING, LONDON))
        assert len(counts) == 92
        assert (reader.report.gaps, reader.report.refused) == (4, 0)

    def test_a_count_in_the_skipped_hour_is_refused(self, read):
        counts, reader = read([("2019-03-31", end, "5") for end in webtris_ends()])
        assert len(counts) == 92
        assert reader.report.reasons == {"must be a local time that exists in Europe/London: the clocks skip it": 4}

    def test_in_autumn_a_time_that_comes_once_is_its_first_occurrence(self, read):
        counts, _ = read([("2019-10-27", end, "5") for end in webtris_ends()])
        real = list(GRID.local_day(AUTUMN, LONDON))
        assert [count.slot for count in counts] == real[:8] + real[12:]

    def test_in_autumn_a_time_that_comes_again_is_its_second_occurrence(self, read):
        ends = webtris_ends()
        cells = [("2019-10-27", end, str(i)) for i, end in enumerate(ends[:8] + ends[4:])]
        cells[4] = (*cells[4][:2], "")  # a gap holds its place
        counts, _ = read(cells)
        real = list(GRID.local_day(AUTUMN, LONDON))
        assert len(real) == 100
        assert [(count.slot, count.count) for count in counts] == [(slot, i) for i, slot in enumerate(real) if i != 4]

    def test_a_day_that_comes_again_replaces_the_first(self, read):
        counts, _ = read([("2019-10-27", end, flow) for flow in "57" for end in webtris_ends()])
        assert [count.slot for count in counts[::2]] == [count.slot for count in counts[1::2]]
        assert [count.count for count in counts] == [5, 7] * 96


class TestCsv:
    def test_quotes_spaces_and_a_byte_order_mark_do_no_harm(self):
        quoted = [
            ", ".join(f'"{cell}"' for cell in line.split(","))
            for line in (WEBTRIS_HEADER, webtris_row(DAY, "00:14:00", 3))
        ]
        counts, reader = read_bytes(gzip.compress(("\ufeff" + "\r\n".join(quoted)).encode()))
        assert [count.count for count in counts] == [3]
        assert reader.report.layout == "webtris-daily"

    def test_a_file_cut_off_within_a_row_has_one_row_refused(self):
        data = "\n".join([WEBTRIS_HEADER, webtris_row(DAY, "00:14:00", 3), webtris_row(DAY, "00:29:00", 12)]).encode()
        counts, reader = read_bytes(data[:-8])
        assert len(counts) == 1
        assert reader.report.refusals[0].line == 3


class TestJson:
    def test_null_is_a_gap_and_a_number_a_count(self):
        counts, reader = as_line([(DAY, "00:14:00", None), (DAY, "00:29:00", 12)])
        assert [count.count for count in counts] == [12]
        assert reader.report.gaps == 1

    @pytest.mark.parametrize("count", [True, 1.5, [], {"a": 1}])
    def test_other_things_are_refused(self, count):
        counts, reader = as_line([(DAY, "00:14:00", count), (DAY, "00:29:00", 12)])
        assert [count.count for count in counts] == [12]
        assert reader.report.refused >= 1

    def test_a_refused_row_is_named_by_its_line_and_its_number(self):
        cells = [(DAY, "00:14:00", "3"), (DAY, "00:29:00", "-3")]
        assert refusals(as_line(cells)[1]) == [(1, "Rows[1] Total Volume", "-3")]
        [(line, _, _)] = refusals(as_lines(cells)[1])
        text = document([webtris_fields(*cell) for cell in cells], indent=2).splitlines()
        assert text[line - 1] == "    {"
        assert '"00:29:00"' in "".join(text[line : line + 5])

    def test_a_row_without_a_key_is_refused(self):
        row = webtris_fields(DAY, "00:14:00", "3")
        del row["Total Volume"]
        _, reader = read_all(document([row]))
        assert reader.report.refusals[0].reason == "must be given"

    def test_a_line_of_any_length_is_read_whole(self):
        cells = [(f"2019-01-{day:02}", end, str(day)) for day in range(1, 31) for end in webtris_ends()]
        text = document([webtris_fields(*cell) for cell in cells])
        assert len(text) > 5 * LONGEST_LINE
        counts, reader = read_all(text)
        assert len(counts) == 30 * 96
        assert reader.report.refused == 0

    @pytest.mark.journey
    def test_memory_does_not_grow_with_the_document(self):
        row = json.dumps(webtris_fields(DAY, "00:14:00", "3"))
        peaks = []
        for n in (500, 2_500):
            stream = io.BytesIO(f'{{"Rows": [{", ".join([row] * n)}]}}'.encode())
            tracemalloc.start()
            with CountReader(stream) as reader:
                assert sum(1 for _ in reader) == n
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < peaks[0] + 50_000

    def test_several_documents_are_read_on(self):
        pages = [document([webtris_fields(DAY, end, "3")]) for end in ("00:14:00", "00:29:00")]
        counts, reader = read_all(*pages)
        assert len(counts) == 2
        assert reader.report.refused == 0

    @pytest.mark.parametrize(("lost", "kept", "refused"), [(0, 3, 0), (1, 3, 0), (2, 3, 1), (3, 2, 1), (40, 2, 1)])
    def test_a_document_cut_short_has_its_end_refused(self, lost, kept, refused):
        text = document([webtris_fields(DAY, end, "3") for end in ("00:14:00", "00:29:00", "00:44:00")])
        counts, reader = read_bytes(text[: len(text) - lost].encode())
        assert len(counts) == kept
        assert reader.report.refused == refused

    def test_a_broken_row_does_not_take_the_next_ones_with_it(self):
        rows = [json.dumps(webtris_fields(DAY, end, "3")) for end in ("00:14:00", "00:29:00", "00:44:00")]
        rows[1] = rows[1].replace(":", "", 1)
        counts, reader = read_all('{"Rows": [' + ", ".join(rows) + "]}")
        assert len(counts) == 2
        assert [(line, field) for line, field, _ in refusals(reader)] == [(1, "Rows[1] row")]

    def test_a_report_without_rows_has_no_counts(self):
        counts, reader = read_all(document([]))
        assert not counts
        assert reader.report.values == 0

    @pytest.mark.parametrize("text", ['{"Header": {}}', '{\n"Header": {}\n}', '{"Header": "' + "x" * 200_000])
    def test_a_document_without_a_list_of_rows_is_refused(self, text):
        with pytest.raises(CountFileError, match='it has no list "Rows"'):
            read_all(text)

    def test_a_row_without_end_is_refused_before_it_fills_the_memory(self):
        with pytest.raises(CountFileError, match=f"has a row of more than {LONGEST_LINE} characters, from line 1 on"):
            read_all('{"Rows": [{"Site Name": "' + "x" * 500_000)

    def test_a_first_line_that_is_cut_within_a_character_is_text_all_the_same(self):
        row = webtris_fields(DAY, "00:14:00", "3") | {"note": "ü" * LONGEST_LINE}
        for shift in ("", " "):
            with pytest.raises(CountFileError, match="has a row of more than"):
                read_all('{"Rows": [' + shift + json.dumps(row, ensure_ascii=False))

    @given(st.text(max_size=60))
    def test_whatever_a_row_holds_every_value_is_accounted_for(self, text):
        row = json.dumps(webtris_fields(DAY, "00:14:00", "3"))
        counts, _ = read_bytes(f'{{"Rows": [\n{row}, {text}'.encode(errors="replace"))
        assert counts[0].count == 3
