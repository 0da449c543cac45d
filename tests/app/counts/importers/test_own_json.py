import json

import pytest

from app.counts.importers import Columns, CountFileError
from tests.support.count_files import read_all, read_bytes, refusals

ROWS = [{"link_id": "Ba", "slot_start": f"2006-10-02T10:{minute}:00Z", "count": 3} for minute in ("00", "15", "30")]


@pytest.mark.parametrize("document", [ROWS, {"counts": ROWS}])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_and_an_object_with_a_list_are_read_on_one_line_or_many(document, indent):
    counts, reader = read_bytes(json.dumps(document, indent=indent).encode())
    assert [count.count for count in counts] == [3, 3, 3]
    assert (reader.report.layout, reader.report.refused) == ("flowcast-json", 0)


def test_keys_in_upper_case_and_others_make_no_difference():
    rows = [{"LINK_ID": "Ba", "Slot_Start": 1159748100, "count": 12.0, "speed": 61.5}]
    counts, reader = read_all(json.dumps(rows))
    assert [count.count for count in counts] == [12]
    assert reader.report.notes == ["columns that are not read: speed"]


def test_other_keys_can_be_mapped_and_the_link_named():
    rows = [{"at": row["slot_start"], "n": row["count"]} for row in ROWS]
    columns = Columns.parse("slot_start=at,count=n", "A7")
    for text in (json.dumps(rows), "\n".join(map(json.dumps, rows))):
        counts, _ = read_all(text, columns=columns)
        assert [(count.link_id, count.count) for count in counts] == [("A7", 3)] * 3


def test_a_bad_row_is_refused_by_its_place_and_the_rest_is_read():
    rows = [ROWS[0], ROWS[1] | {"count": -1}, ROWS[2]]
    counts, reader = read_all(json.dumps(rows, indent=2))
    assert len(counts) == 2
    assert refusals(reader) == [(7, "counts[1] count", "-1")]


def test_an_empty_list_has_no_counts():
    assert read_all("[]")[0] == []


def test_a_document_without_the_list_is_refused():
    with pytest.raises(CountFileError, match="has no list of counts: it must be a JSON list or"):
        read_all('{"counts": 7}')
