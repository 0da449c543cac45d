"""Cells that a spreadsheet would run are written as text, and read back as they were."""

import csv
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.http.csv import CSV, FORMULA, as_cell, from_cell
from tests.support.count_files import read_all
from tests.support.databases import on_sqlite


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"])
def test_what_would_run_is_marked_as_text(text):
    assert as_cell(text) == "'" + text
    assert from_cell(as_cell(text)) == text


@given(st.text(max_size=10))
@example("'-7")
def test_no_cell_begins_like_a_formula_and_every_text_comes_back(text):
    cell = as_cell(text)
    assert not cell.startswith(FORMULA)
    if not text.startswith("'"):  # which no link id does
        assert from_cell(cell) == text


def test_the_importer_reads_marked_and_unmarked_ids_alike():
    counts, reader = read_all(
        "link_id,slot_start,count",
        "'-7,2006-10-02T10:15:00Z,1",
        "-7,2006-10-02T10:30:00Z,2",
        "'7,2006-10-02T10:30:00Z,3",
    )
    assert [(count.link_id, count.count) for count in counts] == [("-7", 1), ("-7", 2)]
    assert [refusal.value for refusal in reader.report.refusals] == ["'7"]


def test_a_cell_survives_a_csv_file():
    out = io.StringIO()
    csv.writer(out).writerow([as_cell("-a,b"), as_cell("plain")])
    [row] = csv.reader(io.StringIO(out.getvalue()))
    assert [from_cell(cell) for cell in row] == ["-a,b", "plain"]


@on_sqlite
def test_no_cell_of_an_answer_can_run(client, put_link):
    put_link("-A", zone="UTC")
    text = client.get("/v1/accuracy", headers={"Accept": CSV}).text
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["link_id"] == "'-A"
    assert row["rmse"] == ""
