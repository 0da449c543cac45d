import io
import sys
import tracemalloc
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.counts import importers
from app.counts.importers.reader import CountReader, layouts
from app.counts.importers.record import KEPT_REFUSALS, CountFileError
from tests.support.count_files import read_all, read_bytes

HEADER = b"link_id,slot_start,count\n"
ROW = b"Ba,2006-10-02T10:15:00Z,12\n"


class Rows(io.RawIOBase):
    """A stream of as many rows as wanted, made as they are read."""

    def __init__(self, row: bytes, n: int) -> None:
        self.pending, self.row, self.left = HEADER, row, n

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while self.left and len(self.pending) < len(buffer):
            self.pending += self.row
            self.left -= 1
        taken = self.pending[: len(buffer)]
        buffer[: len(taken)] = taken
        self.pending = self.pending[len(buffer) :]
        return len(taken)


class TestLayouts:
    def test_all_are_known_by_name(self):
        assert list(layouts()) == [
            "flowcast-csv",
            "flowcast-json",
            "flowcast-jsonl",
            "pems-5min",
            "scats-signals",
            "scats-survey",
            "webtris-daily",
            "webtris-daily-json",
        ]

    def test_a_new_module_in_the_package_is_a_new_layout(self, tmp_path, monkeypatch):
        (tmp_path / "pulses.py").write_text(
            "from app.counts.importers.reader import Layout\n"
            "from app.counts.importers.record import ImportedCount\n"
            "def read(reader, lines):\n"
            "    for text in reader.texts(lines):\n"
            "        yield ImportedCount('Ba', 15 * reader.line, len(text))\n"
            "LAYOUTS = [Layout('pulses', 'pulses', lambda first_line: first_line == 'pulses', read, 15)]\n"
        )
        monkeypatch.setattr(importers, "__path__", [*importers.__path__, str(tmp_path)])
        layouts.cache_clear()
        try:
            counts, reader = read_all("pulses", "||||")
        finally:
            layouts.cache_clear()
            sys.modules.pop("app.counts.importers.pulses", None)
        assert reader.report.layout == "pulses"
        assert counts[1].count == 4

    def test_an_unknown_layout_is_named_by_what_was_seen(self):
        with pytest.raises(CountFileError) as refused:
            read_all("time;detector;" + "x" * 200, "1;2;3")
        message = str(refused.value)
        assert "it starts with 'time;detector;xxx" in message
        assert len(message) < 1200
        assert "\n" not in message

    def test_an_unknown_layout_lists_the_columns_that_each_layout_needs(self):
        with pytest.raises(CountFileError) as refused:
            read_all("time,detector,vehicles", "1,2,3")
        message = str(refused.value)
        assert all(f"{name}: {layout.needs}" in message for name, layout in layouts().items())
        assert "flowcast-csv: link_id, slot_start, count and perhaps quality" in message
        assert "webtris-daily: Site Name, Report Date, Time Period Ending, Total Volume" in message
        assert "The option map reads any CSV, as in link_id=Detector,slot_start=Time,count=Vol" in message

    def test_an_unknown_name_of_a_layout_is_refused(self):
        with pytest.raises(CountFileError, match="format='pems' is refused; it must be auto or one of flowcast-csv"):
            CountReader(io.BytesIO(HEADER), layout="pems")


class TestReading:
    def test_counts_come_one_by_one(self):
        with CountReader(Rows(ROW, 10**12)) as reader:
            assert next(iter(reader)).count == 12

    @pytest.mark.journey
    @pytest.mark.parametrize("row", [ROW, b"Ba,2006-10-02T10:15:00Z,-1\n"])
    def test_memory_does_not_grow_with_the_file(self, row):
        peaks = []
        for n in (2_000, 8_000):
            tracemalloc.start()
            with CountReader(Rows(row, n)) as reader:
                assert sum(1 for _ in reader) + reader.report.refused == n
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < peaks[0] + 50_000

    def test_a_line_without_end_is_not_held_in_memory(self):
        tracemalloc.start()
        with CountReader(Rows(b"9" * 1000, 20_000)) as reader:
            assert list(reader) == []
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000
        assert reader.report.refused == 1

    def test_the_first_refusals_are_kept_and_all_are_counted(self):
        _, reader = read_bytes(HEADER + b"Ba,2006-10-02T10:15:00Z,-1\n" * 1000)
        assert len(reader.report.refusals) == KEPT_REFUSALS
        assert reader.report.refused == sum(reader.report.reasons.values()) == 1000

    @given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=20))
    def test_whatever_the_rows_hold_every_value_is_accounted_for(self, rows):
        counts, reader = read_bytes(HEADER + b"\n".join([*rows, ROW]))
        assert counts[-1].count == 12
        assert reader.report.rows == sum(bool(row.strip()) for row in rows) + 1

    def test_a_file_of_a_header_alone_has_no_counts(self):
        counts, reader = read_bytes(HEADER)
        assert not counts
        assert reader.report.rows == 0

    def test_standard_input_is_a_dash(self, monkeypatch):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(HEADER + ROW)))
        with CountReader("-") as reader:
            assert len(list(reader)) == 1

    def test_a_stream_that_was_handed_in_stays_open(self):
        stream = io.BytesIO(HEADER + ROW)
        with CountReader(stream) as reader:
            list(reader)
        assert not stream.closed
