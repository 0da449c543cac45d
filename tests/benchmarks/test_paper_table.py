import json

import pytest

from benchmarks.paper_table import METHODS, PAPER, main

pytestmark = pytest.mark.journey


def test_beats_the_papers_kr_sml_and_its_siblings_on_housing(regression_data, tmp_path, capsys):
    arguments = ["--data", str(regression_data), "--sets", "housing", "--quick", "--jobs", "1", "--json"]
    assert main([*arguments, "--figures", str(tmp_path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert set(row["methods"]) == set(METHODS)
    assert row["d"] == 13
    assert row["to_paper"] == pytest.approx(row["methods"]["KR_SML"]["rmse"] / PAPER["housing"].rmse[3])
    assert row["to_paper"] < 1
    assert row["methods"]["KR_SML"]["rmse"] < row["methods"]["KR"]["rmse"]
    assert row["methods"]["KR_SML"]["rank"] < 13
    for figure in ("figure1.png", "figure2.png"):
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")


def test_prints_the_papers_row_beneath(regression_data, capsys):
    assert main(["--data", str(regression_data), "--sets", "housing", "--quick", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "5.8919" in out
    assert "KR_SML is at or below the paper's KR_SML on 1 of 1 sets" in out


def test_missing_data_is_said_in_one_line(tmp_path, capsys):
    assert main(["--data", str(tmp_path / "nowhere")]) == 2
    assert "no data at" in capsys.readouterr().err


def test_an_unknown_set_is_named(regression_data, capsys):
    assert main(["--data", str(regression_data), "--sets", "kin99"]) == 2
    assert "no set kin99" in capsys.readouterr().err
