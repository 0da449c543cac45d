import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from app.evaluation.days import Choice
from app.evaluation.evaluate import figure_name, make_report
from app.evaluation.page import write_report
from app.evaluation.report import Report
from app.evaluation.tables import tables_csv
from app.http.csv import from_cell
from tests.support.evaluation import PLAN

pytestmark = pytest.mark.journey  # a picture for each link; the first one of a machine lists its fonts in a process


@pytest.fixture(scope="module")
def made(odd_link) -> tuple[Report, dict[str, bytes]]:
    name = "a.b:c"
    done = odd_link._replace(result=replace(odd_link.result, link_id=name, figure=figure_name(name)))
    return make_report(["some/where/counts.csv"], PLAN, 15, Choice([], [], []), [done], 1.0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_writes_the_four_kinds_of_file_into_a_new_folder(made, tmp_path):
    write_report(tmp_path / "new" / "one", *made)
    assert names(tmp_path / "new" / "one") == ["figure4-a.b%3Ac.png", "report.html", "report.json", "tables.csv"]


def test_removes_an_older_reports_pictures_and_nothing_else(made, tmp_path):
    for name in ("figure4-gone.png", "figure4-notes.txt", "figure3.png", "mine.png"):
        (tmp_path / name).write_text("old")
    write_report(tmp_path, *made)
    assert "figure4-gone.png" not in names(tmp_path)
    assert {"figure4-notes.txt", "figure3.png", "mine.png"} < set(names(tmp_path))


def test_an_interruption_leaves_the_old_report_as_it_was(made, tmp_path, monkeypatch):
    write_report(tmp_path, *made)
    (tmp_path / "report.json").write_text("old")
    write = Path.write_bytes

    def interrupted(self: Path, content: bytes) -> int:
        if self.name == "report.html":
            write(self, content[:100])
            raise KeyboardInterrupt
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_report(tmp_path, *made)
    assert (tmp_path / "report.json").read_text() == "old"
    assert names(tmp_path) == ["figure4-a.b%3Ac.png", "report.html", "report.json", "tables.csv"]


def test_a_link_id_like_a_formula_is_written_as_text(made):
    report, _ = made
    [link] = report.links
    rows = list(csv.DictReader(io.StringIO(tables_csv(replace(report, links=[replace(link, link_id="-2-3")])))))
    assert {row["link_id"] for row in rows} == {"'-2-3"}
    assert {from_cell(row["link_id"]) for row in rows} == {"-2-3"}
