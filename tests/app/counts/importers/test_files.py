import gzip
import io

import pytest

from app.counts.importers.reader import CountReader
from app.counts.importers.record import CountFileError
from tests.support.count_files import HEADER, ROW, Pipe, read_bytes, zipped

BAD = b"Ba,2006-10-02T10:15:00Z,-1\n"
LINE = b'{"link_id": "Cf", "slot_start": "2006-10-02T10:15:00Z", "count": 3}\n'


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda data: zipped(a=data)])
def test_plain_and_packed_files_read_alike_by_path_and_from_a_pipe(pack, tmp_path):
    path = tmp_path / "counts"
    path.write_bytes(pack(HEADER + ROW))
    for source in (path, str(path), Pipe(path.read_bytes())):
        with CountReader(source) as reader:
            assert [count.count for count in reader] == [12]


def test_all_members_of_an_archive_are_read_each_by_its_own_layout():
    members = {"one.csv": HEADER + ROW, "two.jsonl": LINE, "three.csv.gz": gzip.compress(HEADER + ROW + BAD)}
    counts, reader = read_bytes(zipped(**members))
    assert [count.link_id for count in counts] == ["Ba", "Ba", "Cf"]
    assert reader.report.layout == "flowcast-csv, flowcast-jsonl"
    [refusal] = reader.report.refusals
    assert (refusal.source, refusal.line) == ("the stream/three.csv.gz", 3)


def test_a_member_of_unknown_layout_is_named_before_anything_is_read():
    with pytest.raises(CountFileError, match=r"readme.txt has an unknown layout: it starts with 'Hello'"):
        CountReader(io.BytesIO(zipped(**{"one.csv": HEADER + ROW, "readme.txt": b"Hello\n"})))


def test_folders_and_resource_forks_of_an_archive_are_passed_over():
    counts, _ = read_bytes(zipped(**{"data/": b"", "data/one.csv": HEADER + ROW, "__MACOSX/._one.csv": b"\0"}))
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (zipped(), "is an archive without members"),
        (zipped(**{"data/": b""}), "is an archive without members"),
        (b"\x89PNG\r\n\x1a\n\0\0", "is binary, or text other than UTF-8"),
        ((HEADER + ROW).decode().encode("utf-16"), "is binary, or text other than UTF-8"),
        (zipped(a=HEADER + ROW)[:-30], "cannot be read: File is not a zip file"),
        (gzip.compress(HEADER + ROW, mtime=0)[:12], "is truncated: its compressed data ends too early"),
        (b"\x1f\x8bnot gzip at all", "cannot be read"),
    ],
)
def test_a_file_that_holds_no_counts_has_a_clear_error_of_one_line(data, message, tmp_path):
    path = tmp_path / "counts"
    path.write_bytes(data)
    with pytest.raises(CountFileError, match=message) as refused:
        CountReader(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_truncated_gzip_gives_what_it_holds_and_then_the_error():
    rows = b"".join(b"Ba,2006-10-02T10:15:00Z,%d\n" % (count * 7919 % 9973) for count in range(20_000))
    counts = []
    with CountReader(io.BytesIO(gzip.compress(HEADER + rows)[:-2000])) as reader:  # noqa: SIM117
        with pytest.raises(CountFileError, match="is truncated"):
            counts.extend(reader)
    assert reader.report.rows == len(counts) > 0


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(CountFileError, match=r"absent.csv cannot be read: No such file or directory"):
        CountReader(tmp_path / "absent.csv")
    with pytest.raises(CountFileError, match="cannot be read: Is a directory"):
        CountReader(tmp_path)


def test_a_damaged_member_is_an_error():
    packed = bytearray(zipped(a=HEADER + ROW * 50))
    packed[50] ^= 0xFF
    with pytest.raises(CountFileError, match="cannot be read"):
        read_bytes(bytes(packed))
