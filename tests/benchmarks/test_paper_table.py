import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from benchmarks import paper_table
from benchmarks.paper_table import METHODS, PAPER, main

pytestmark = pytest.mark.journey


ARGUMENTS = ["--sets", "housing", "--quick", "--jobs", "1"]


@pytest.fixture(scope="module")
def housing(regression_data, tmp_path_factory) -> tuple[dict[str, Any], Path]:
    """Return the row of the set housing as JSON, and the folder of its figures."""
    folder = tmp_path_factory.mktemp("figures")
    with redirect_stdout(StringIO()) as out:
        assert main(["--data", str(regression_data), *ARGUMENTS, "--json", "--figures", str(folder)]) == 0
    (row,) = json.loads(out.getvalue())["rows"]
    return row, folder


def test_beats_the_papers_kr_sml_and_its_siblings_on_housing(housing):
    row, folder = housing
    assert set(row["methods"]) == set(METHODS)
    assert row["d"] == 13
    assert row["to_paper"] == pytest.approx(row["methods"]["KR_SML"]["rmse"] / PAPER["housing"].rmse[3])
    assert row["to_paper"] < 1
    assert row["methods"]["KR_SML"]["rmse"] < row["methods"]["KR"]["rmse"]
    assert row["methods"]["KR_SML"]["rank"] < 13
    for figure in ("figure1.png", "figure2.png"):
        assert (folder / figure).read_bytes().startswith(b"\x89PNG")


def test_prints_the_papers_row_beneath(housing, regression_data, monkeypatch, capsys):
    monkeypatch.setattr(paper_table, "run", lambda *_: [housing[0]])  # to fit it again would print the same
    assert main(["--data", str(regression_data), *ARGUMENTS]) == 0
    out = capsys.readouterr().out
    assert "5.8919" in out
    assert "KR_SML is at or below the paper's KR_SML on 1 of 1 sets" in out


def test_missing_data_is_reported_in_one_line(tmp_path, capsys):
    assert main(["--data", str(tmp_path / "nowhere")]) == 2
    assert "no data at" in capsys.readouterr().err


def test_an_unknown_set_is_named(regression_data, capsys):
    assert main(["--data", str(regression_data), "--sets", "kin99"]) == 2
    assert "no set kin99" in capsys.readouterr().err
