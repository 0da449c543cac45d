"""Hostile files, and files that are broken in any way: refused with a reason, without a crash and within bounds."""

import gzip
import io
import json
import stat
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.counts.importers import unpacking
from app.counts.importers.reader import CountReader, layouts
from app.counts.importers.record import CountFileError
from tests.support.count_files import (
    HEADER,
    ROW,
    SIGNALS_HEADER,
    SURVEY_HEADER,
    WEBTRIS_HEADER,
    Pipe,
    pems_row,
    pems_times,
    read_bytes,
    signals_row,
    survey_row,
    webtris_ends,
    webtris_fields,
    webtris_row,
    zipped,
)
from tests.support.memory import limit_memory

pytestmark = pytest.mark.journey

MEGABYTE = 1 << 20
DAY = list(range(96))
TEXTS = {
    "scats-survey": [SURVEY_HEADER, survey_row("2006-10-02", DAY)],
    "scats-signals": [SIGNALS_HEADER, signals_row("2025-09-01", DAY)],
    "flowcast-csv": ["link_id,slot_start,count", "Ba,2006-10-02T10:15:00Z,12", "Bb,2006-10-02T10:15:00+10:00,1"],
    "flowcast-json": ['[{"link_id": "Cf", "slot_start": "2006-10-02T10:15:00Z", "count": 3}]'],
    "flowcast-jsonl": ['{"link_id": "Cf", "slot_start": "2006-10-02T10:15:00Z", "count": 3, "quality": "imputed"}'],
    "pems-5min": [pems_row(time, 7) for time in pems_times(datetime(2025, 9, 1), 6)],
    "webtris-daily": [WEBTRIS_HEADER, *(webtris_row("2025-09-01", end, 4) for end in webtris_ends()[:5])],
    "webtris-daily-json": [
        json.dumps({"Header": {}, "Rows": [webtris_fields("2025-09-01", end, 4) for end in webtris_ends()[:5]]})
    ],
}
PLAIN = {name: "\n".join([*lines, ""]).encode() for name, lines in TEXTS.items()}
FILES = sorted(
    [*PLAIN.values(), *(gzip.compress(data, mtime=0) for data in PLAIN.values()), zipped(**PLAIN)],
    key=len,
)


def read_or_refuse(data: bytes, **how: object) -> str | None:
    """Read a file to its end and check the account of its values, or give the reason it is refused for."""
    refused = None
    try:
        read_bytes(data, **how)
    except CountFileError as refusal:
        refused = str(refusal)
    assert refused is None or "\n" not in refused
    return refused


def test_the_samples_cover_every_layout():
    assert PLAIN.keys() == layouts().keys()
    assert [read_or_refuse(data) for data in FILES] == [None] * len(FILES)


@settings(max_examples=40, deadline=None)
@example(b"\xc2", "flowcast-csv")  # a character cut short by the end of the file
@given(st.binary(max_size=300), st.sampled_from(["auto", *layouts()]))
def test_any_bytes_are_read_or_refused(data: bytes, layout: str):
    read_or_refuse(data, layout=layout)


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=200), st.sampled_from(sorted(PLAIN)))
def test_any_text_below_a_sound_first_line_is_read_or_refused(text: str, layout: str):
    first = TEXTS[layout][0]
    assert read_or_refuse(f"{first}\n{text}\n".encode()) is None


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_real_files_cut_short_or_changed_anywhere_are_read_or_refused(data: st.DataObject):
    file = bytearray(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(0, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(file[: data.draw(st.integers(0, len(file)))]))


@pytest.mark.parametrize(
    ("line", "layout"),
    [
        (b'{"link_id": ' + b"[" * 30_000, "flowcast-jsonl"),
        (b'{"link_id": "A", "slot_start": "2006-10-02T10:15:00Z", "count": ' + b"9" * 5000 + b"}", "flowcast-jsonl"),
        (b'{"link_id": "A", "slot_start": "2006-10-02T10:15:00Z", "count": NaN}', "flowcast-jsonl"),
        (b'{"link_id": "A", "slot_start": "2006-10-02T10:15:00Z", "count": -Infinity}', "flowcast-jsonl"),
        (b'{"link_id": "A", "slot_start": "2006-10-02T10:15:00Z", "count": 1e400}', "flowcast-jsonl"),
        (b'{"link_id": "\\ud800", "slot_start": "2006-10-02T10:15:00Z", "count": 1}', "flowcast-jsonl"),
        (b'{"link_id": "A\\u0000", "slot_start": "2006-10-02T10:15:00Z", "count": 1}', "flowcast-jsonl"),
        (b"Ba,2006-10-02T10:15:00Z," + b"9" * 60_000, "flowcast-csv"),
        (b"Ba\x00,2006-10-02T10:15:00Z,1", "flowcast-csv"),
        ("Bä,2006-10-02T10:15:00Z,1".encode("latin-1"), "flowcast-csv"),
        (b'"' * 60_001, "flowcast-csv"),
        (b"," * 60_000, "flowcast-csv"),
        (b"1" * 10_000 + b"/1/2025 00:00:00" + b"," * 11, "pems-5min"),
    ],
)
def test_a_line_that_means_harm_is_refused_and_the_next_one_read(line: bytes, layout: str):
    lines = PLAIN[layout].splitlines()
    counts, reader = read_bytes(b"\n".join([lines[0], line, *lines[1:], b""]))
    assert reader.report.refused == 1
    assert len(counts) == len(read_bytes(PLAIN[layout])[0])


def test_rows_nested_deeply_in_a_report_are_refused():
    assert read_or_refuse(b'{"Rows": [' + b'{"Site Name": ' * 50_000) is not None
    counts, reader = read_bytes(b'{"Rows": [' + b"[" * 20_000 + b"}")
    assert counts == []
    assert reader.report.refused == reader.report.values > 0


class Endless(io.RawIOBase):
    """A first line, then one that never ends, for as long as a test could wait."""

    def __init__(self, first: bytes, filler: bytes, size: int) -> None:
        self._first, self._filler, self._left = first, filler, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._first or self._filler * (len(buffer) // len(self._filler))
        data, self._first = data[: len(buffer)], b""
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data) if self._left > 0 else 0


@pytest.mark.parametrize("filler", [b",", b"a,", b'"', b"1"])
def test_a_line_without_end_takes_no_memory(filler: bytes):
    with limit_memory():
        with CountReader(Endless(HEADER, filler, 40 * MEGABYTE), layout="flowcast-csv") as reader:
            assert list(reader) == []
        assert reader.report.refused == 1
        with pytest.raises(CountFileError, match="unknown layout"):
            CountReader(Endless(b"", filler, 40 * MEGABYTE))


@pytest.mark.parametrize("layout", sorted(PLAIN))
def test_a_file_cannot_name_links_without_end(layout, monkeypatch):
    """A gap names a link as well as a count does, and memory holds each."""
    names = ("0970", "0100", "Ba", "Cf", "1108148", "M25/4490A")
    monkeypatch.setattr("app.counts.importers.reader.MOST_LINKS", 3)
    first, *rows = TEXTS[layout] if layout not in ("flowcast-jsonl", "pems-5min") else ["", *TEXTS[layout]]
    if layout == "flowcast-json":
        row = {"slot_start": "2006-10-02T10:15:00Z", "count": None}
        first, rows = "", [json.dumps([row | {"link_id": f"L{i}"} for i in range(4)])]
    elif layout == "webtris-daily-json":
        rows = [json.dumps({"Rows": [webtris_fields("2025-09-01", "00:14:00", "", f"site {i}") for i in range(4)]})]
        first = ""
    else:
        [name] = [name for name in names if name in rows[0]]
        rows = [rows[0].replace(name, f"{i:04}") for i in range(4)]
    three = len(rows) - 1 if len(rows) > 1 else 0
    data = "\n".join([first, *rows]).lstrip("\n").encode()
    assert read_or_refuse(data) == "the file names more than 3 links; split it"
    if three:
        assert read_or_refuse("\n".join([first, *rows[:three]]).lstrip("\n").encode()) is None


class TestUnpacking:
    def test_gzip_that_unpacks_to_too_much_is_refused_while_it_is_unpacked(self):
        packed = gzip.compress(HEADER + bytes(40 * MEGABYTE))
        with limit_memory():
            reason = read_or_refuse(packed, most_unpacked=8 * MEGABYTE)
        assert reason == "the stream unpacks to more than the 8 MB, which FLOWCAST_MAX_UNPACKED_MEGABYTES allows"

    def test_so_is_an_archive_whose_members_do_so_together(self):
        member = HEADER + bytes(3 * MEGABYTE)
        packed = zipped(**{f"{i}.csv": member for i in range(4)})
        assert read_or_refuse(packed, most_unpacked=13 * MEGABYTE) is None
        reason = read_or_refuse(packed, most_unpacked=8 * MEGABYTE)
        assert reason == "the stream/2.csv unpacks to more than the 8 MB, which FLOWCAST_MAX_UNPACKED_MEGABYTES allows"

    def test_so_is_gzip_in_an_archive(self):
        packed = zipped(**{"a.csv.gz": gzip.compress(HEADER + bytes(20 * MEGABYTE))})
        assert "unpacks to more than" in str(read_or_refuse(packed, most_unpacked=8 * MEGABYTE))

    def test_a_small_file_that_unpacks_a_thousandfold_is_refused_early(self, monkeypatch):
        monkeypatch.setattr(unpacking, "UNSUSPICIOUS", MEGABYTE)
        packed = gzip.compress(HEADER + bytes(20 * MEGABYTE))
        reason = read_or_refuse(packed, most_unpacked=4096 * MEGABYTE)
        assert reason == "the stream unpacks to more than 250 times its size; no file of counts does"

    def test_files_of_counts_are_far_from_that(self):
        day = "\n".join([SURVEY_HEADER, *(survey_row(f"2006-10-{i + 1:02}", [0] * 96) for i in range(31)), ""]).encode()
        assert len(day) < unpacking.LARGEST_RATIO / 4 * len(gzip.compress(day))

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_packings_that_cannot_be_bounded_are_refused(self, method):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", method) as archive:
            archive.writestr("a.csv", HEADER + bytes(20 * MEGABYTE))
        with limit_memory():
            reason = read_or_refuse(packed.getvalue())
        assert reason == f"the stream/a.csv is packed by method {method}; it must be stored or deflated"

    def test_an_archive_of_many_members_is_refused_before_they_are_looked_at(self):
        names = {f"{i}.csv": b"" for i in range(unpacking.MOST_MEMBERS + 1)}
        assert read_or_refuse(zipped(**names)) == "the stream has more than 1000 members; split it"
        entry = b"PK\x01\x02" + bytes(42)
        listed = entry * 200_000
        end = b"PK\x05\x06" + bytes(4) + b"\xff\xff\xff\xff" + len(listed).to_bytes(4, "little") + bytes(6)
        data = b"PK\x03\x04" + listed + end
        with limit_memory():
            assert read_or_refuse(data) == "the stream has more than 1000 members; split it"

    @pytest.mark.parametrize(
        "inner", [zipped(a=HEADER + ROW), gzip.compress(gzip.compress(HEADER + ROW))], ids=["zip", "gzip of gzip"]
    )
    def test_archives_within_archives_are_refused(self, inner):
        reason = read_or_refuse(zipped(**{"inner": inner}))
        assert reason == "the stream/inner is an archive within an archive; unpack it first"

    def test_gzip_within_gzip_is_refused(self):
        reason = read_or_refuse(gzip.compress(gzip.compress(HEADER + ROW)))
        assert reason == "the stream is an archive within an archive; unpack it first"


class TestNamesInArchives:
    @pytest.mark.parametrize("name", ["../../escaped.csv", "/escaped.csv", "C:\\escaped.csv", "a/../../escaped.csv"])
    def test_nothing_is_written_wherever_a_name_leads(self, name, tmp_path: Path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        counts, _ = read_bytes(zipped(**{name: HEADER + ROW}))
        assert len(counts) == 1
        assert list(tmp_path.rglob("*")) == []

    def test_a_name_cannot_control_the_terminal_or_the_log(self):
        packed = zipped(**{"\x1b[2J\r\nroot: all is well": HEADER + b"?" * 9 + b"\n", "b" * 9000: HEADER + b"?\n"})
        _, reader = read_bytes(packed)
        sources = [refusal.source for refusal in reader.report.refusals]
        assert sources[0] == "the stream/\ufffd[2J\ufffd\ufffdroot: all is well"
        assert all(source.isprintable() and len(source) < 300 for source in sources)

    def test_a_symbolic_link_is_refused(self):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            link = zipfile.ZipInfo("counts.csv")
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, "/etc/passwd")
        reason = read_or_refuse(packed.getvalue())
        assert reason == "the stream/counts.csv is a symbolic link; it must be a file"

    def test_a_pipe_is_bounded_too(self):
        pipe = Pipe(gzip.compress(HEADER + bytes(9 * MEGABYTE)))
        with (
            pytest.raises(CountFileError, match="unpacks to more than"),
            CountReader(pipe, most_unpacked=MEGABYTE) as r,
        ):
            list(r)
