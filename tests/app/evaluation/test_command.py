"""``flowcast evaluate``: its output, errors and exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner, Result

from app.cli import cli
from app.demo.city import sample_city, write_csv
from tests.support.waiting import WAIT_SECONDS, wait_until

FLOWCAST = Path(sys.executable).with_name("flowcast")
COMMANDS = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()


def evaluate(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["evaluate", *map(str, arguments), "--jobs", "1"])


@pytest.fixture(scope="module")
def partial(tmp_path_factory) -> tuple[Result, Path]:
    """Return the evaluation of three links, one of which has enough counts, and the folder of its report."""
    folder = tmp_path_factory.mktemp("partial")
    city = sample_city(links=3, days=11)
    city.counts["Ba"][9 * 96 :] = float("nan")
    city.counts["Cf"][:] = 0
    city.counts["Fe"][3 * 96 : 4 * 96] = float("nan")
    write_csv(city, folder / "counts.csv")
    options = ["--train-days", 8, "--test-days", 2, "--lags", 8, "--zone", "Europe/Berlin", "--from", "2025-09-02"]
    options += ["--sample", 5, "--seed", 3, "--protocol", "product"]
    done = evaluate(folder / "counts.csv", *options, "--output", folder / "report")
    assert done.exit_code == 0, done.output
    return done, folder / "report"


@pytest.mark.journey
def test_prints_a_table_and_where_the_report_is(partial):
    done, folder = partial
    assert "test RMSE one slot ahead, 8 + 2 days" in done.stdout
    assert "NETWORK is left out for Fe: a network of 1 link cannot be trained" in done.stderr
    assert str(folder / "report.html") in done.stdout.replace("\n", "")
    assert "2 held-out days instead of 7" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == [
        "figure4-Fe.png",
        "report.html",
        "report.json",
        "tables.csv",
    ]


@pytest.mark.journey
def test_the_report_has_the_options(partial):
    report = json.loads((partial[1] / "report.json").read_text())
    assert (report["options"]["sample"], report["options"]["seed"]) == (5, 3)
    [link] = report["links"]
    assert link["train_from"] == "2025-09-02"
    assert [method["k"] for method in link["methods"]] == [20] * 4 + [None] * 3
    assert {method["protocol"] for method in link["methods"]} == {"product"}


@pytest.mark.journey
def test_links_that_cannot_be_evaluated_are_listed(partial):
    done, folder = partial
    best, place, left_out, *links = done.stdout.splitlines()[:5]
    assert best.startswith("best method over 1 link: ")
    assert place.startswith("KR_SML has place ")
    assert left_out == "links left out: 2"
    assert links[0] == "not evaluated: Ba: it has no count on the 2 test days from 2025-09-10 on"
    assert links[1].startswith("not evaluated: Cf: every count of the training days is 0")
    assert "links with days without a count are kept (how many days): Fe (1)" in done.stderr
    assert "a sample of 5 was requested; 1 links can be evaluated, and all were taken" in done.stderr
    report = json.loads((folder / "report.json").read_text())
    assert [link["link_id"] for link in report["not_evaluated"]] == ["Ba", "Cf"]
    assert len(report["links"]) == report["summary"]["n_links"] == 1


def test_a_run_that_evaluates_nothing_fails_and_writes_nothing(city_file, tmp_path):
    done = evaluate(city_file, "--output", tmp_path / "report")  # ten days are not twenty-five
    assert done.exit_code == 1
    assert "not evaluated: Ba: it has no count on the 3 test days from 2025-09-23 on" in done.stderr
    assert "nothing could be evaluated; no report was written" in done.stderr
    assert list((tmp_path / "report").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train-days", 0], "evaluate: --train-days=0 is refused"),
        (["--test-days", 0], "evaluate: --test-days=0 is refused"),
        (["--links", "Xx"], "no link Xx in the files; there are Ba, Cf"),
        (["--links", "Ba", "--sample", 1], "exclude each other"),
        (["--sample", 0], "sample=0 is refused"),
        (["--sample", 1, "--seed", -1], "seed=-1 is refused"),
        (["--from", "yesterday"], "from='yesterday' is refused; it must be a day such as 2006-10-01"),
        (["--protocol", "mine"], "protocol='mine' is refused"),
        (["--neighbors", 0], "evaluate: --neighbors=0 is refused"),
        (["--lags", 0], "lags=0 is refused"),
        (["--slot-minutes", 7], "--slot-minutes=7 is refused"),
        (["--zone", "Mars/Olympus"], "Mars/Olympus"),
        (["--format", "xls"], "--format='xls' is refused"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(city_file, tmp_path, options, message):
    done = evaluate(city_file, *options, "--output", tmp_path / "report")
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.output


def test_no_processes_and_no_file_are_refused(city_file, tmp_path):
    done = CliRunner().invoke(cli, ["evaluate", str(city_file), "--output", str(tmp_path), "--jobs", "0"])
    assert (done.exit_code, "jobs=0 is refused" in done.stderr) == (2, True)
    assert evaluate(tmp_path / "nowhere.csv", "--output", tmp_path).exit_code == 2
    (tmp_path / "taken").write_text("")
    assert evaluate(city_file, "--output", tmp_path / "taken").exit_code == 2


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(city_file, monkeypatch):
    monkeypatch.setattr("app.commands.evaluate.read_network", lambda *_: pytest.fail("the work has begun"))
    done = evaluate(city_file, "--output", "/proc")
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_what_draws_the_report_must_be_installed(city_file, tmp_path, monkeypatch):
    monkeypatch.setattr("app.commands.evaluate.find_spec", lambda name: None)
    done = evaluate(city_file, "--output", tmp_path)
    assert done.exit_code == 2
    assert "matplotlib and plotly must be installed" in done.stderr


@pytest.mark.journey
def test_ctrl_c_leaves_no_report(tmp_path):
    file, report = tmp_path / "city.csv", tmp_path / "report"
    city = sample_city(links=2, days=64)
    city.counts["Cf"][: 2 * 96] = float("nan")  # links with other days learn no network, which would take its time
    write_csv(city, file)
    # So many days that an evaluation takes far longer than a signal.
    command = [FLOWCAST, "evaluate", file, "--train-days", "60", "--test-days", "2", "--jobs", "2", "--output", report]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr
        assert "flowcast-csv" in process.stderr.readline()
        wait_until(lambda: psutil.Process(process.pid).children())  # it has begun to train
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        _, printed = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert "interrupted: no report was written" in printed
    assert list(report.iterdir()) == []


def test_every_option_is_documented():
    section = COMMANDS.split("\n## Evaluate\n")[1].split("\n## ")[0]
    printed = CliRunner().invoke(cli, ["evaluate", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
    options = {word for word in printed.replace("│", " ").split() if word.startswith("--")} - {"--help"}
    assert len(options) > 14
    assert not [option for option in options if f"`{option}`" not in section]


@pytest.mark.journey
def test_a_real_link_is_forecast_better_by_kr_sml_than_by_its_siblings(real_file, tmp_path):
    days = ["--from", "2006-10-18", "--train-days", 10, "--test-days", 4, "--lags", 24]
    done = evaluate(real_file, "--links", "0970-1", *days, "--output", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "report.json").read_text())
    [link] = report["links"]
    assert (link["train_from"], link["test_to"]) == ("2006-10-18", "2006-10-31")
    *siblings, ours = [method["test"]["rmse"] for method in link["methods"][:4]]
    assert ours < min(siblings)
    assert link["methods"][3]["test"]["n_used"] == 4 * 96 - 4  # the day the clocks went forward has 92 slots
    assert link["methods"][3]["test"]["coverage"] > 0.8


@pytest.mark.journey
def test_another_is_under_the_default_plan(real_file, tmp_path):
    done = evaluate(real_file, "--links", "4043-5", "--output", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["options"]["lags"] == list(range(1, 46))
    [link] = report["links"]
    assert (link["train_from"], link["test_to"]) == ("2006-10-01", "2006-10-25")
    *siblings, ours = [method["test"]["rmse"] for method in link["methods"][:4]]
    assert ours < min(siblings)
    assert link["methods"][3]["test"]["n_used"] == 3 * 96
    assert link["methods"][3]["test"]["coverage"] > 0.8
