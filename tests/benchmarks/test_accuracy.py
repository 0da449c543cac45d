import json

import pytest

from app.demo.city import sample_city, write_csv
from benchmarks.accuracy import main, summarise

pytestmark = pytest.mark.journey


def test_measures_every_method_on_the_same_slots_of_a_real_link(real_file, capsys):
    days = ["--train-days", "12"]
    assert main(["--data", str(real_file), "--links", "0970-1", *days, "--jobs", "1", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    (link,) = output["links"]
    assert link["methods"]["KR_SML"]["n_scored"] == 19 * 96 - 4  # the day the clocks went forward has 92 slots
    assert link["methods"]["KR_SML"]["rmse"] < link["methods"]["KR, pinned"]["rmse"]
    assert link["methods"]["KR_SML"]["rmse"] < link["methods"]["LightGBM"]["rmse"]
    assert 0.8 < link["methods"]["KR_SML"]["coverage"] < 0.98
    assert output["summary"]["KR, pinned"]["to_pinned_kr"] == pytest.approx(1.0)


def test_a_link_that_is_not_there_is_named(tmp_path, capsys):
    write_csv(sample_city(links=1, days=2), tmp_path / "city.csv")
    assert main(["--data", str(tmp_path / "city.csv"), "--links", "9999-9"]) == 2
    assert "no link 9999-9" in capsys.readouterr().err


def test_a_missing_file_is_reported(tmp_path, capsys):
    assert main(["--data", str(tmp_path / "nowhere.csv")]) == 2
    assert "nowhere.csv" in capsys.readouterr().err.replace("\n", "")


def test_ratios_are_geometric_means_and_coverage_is_weighted_by_counts():
    def link(ours: float, covered: float, scored: int) -> dict:
        measures = {"wape": 0.1, "mare": 0.1, "geh": 0.9, "seconds": 1.0}
        best = {"rmse": ours, "coverage": covered, "width": 9.0, "rank": 4, "n_scored": scored} | measures
        return {"link_id": "Gb", "methods": {"KR, pinned": {"rmse": 10.0} | measures, "KR_SML": best}}

    summary = summarise([link(5.0, 0.9, 100), link(20.0, 0.7, 300)])
    assert summary["KR_SML"]["to_pinned_kr"] == pytest.approx(1.0)
    assert summary["KR_SML"]["ahead_of_pinned_kr"] == 1
    assert summary["KR_SML"]["coverage_of_all_counts"] == pytest.approx(0.75)
    assert summary["KR_SML"]["links_covered_80"] == 1
