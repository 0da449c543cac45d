"""Training many links: real processes, real files, real interruptions."""

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from typer.testing import CliRunner, Result

from app.cli import cli
from app.core.slots import SlotGrid, zone_named
from app.counts.series import LinkSeries
from app.demo.city import sample_city, write_csv
from app.links.tables import folder_name
from app.training.link_training import LinkTraining
from app.training.train_links import LinkOutcome, train_link, train_links
from model.artifacts.link_models import load_model
from model.link_model.training_plan import TrainingPlan
from tests.support.waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.journey

QUICK = TrainingPlan(lags=12, n_neighbors=8, held_out_days=4, max_iter=3, mu=(1e-3,))
FLOWCAST = Path(sys.executable).with_name("flowcast")


def city_links(n: int = 2, days: int = 12) -> list[LinkSeries]:
    city = sample_city(links=n, days=days)
    zone = zone_named(city.zone)
    return [
        LinkSeries(link_id, city.grid, zone, city.first_slot, counts, np.zeros(len(counts), dtype=bool))
        for link_id, counts in city.counts.items()
    ]


def empty_link() -> LinkSeries:
    return LinkSeries("Zz", SlotGrid(), zone_named("UTC"), 0, np.full(96 * 16, np.nan), np.zeros(96 * 16, dtype=bool))


@pytest.fixture(scope="module")
def trained_together(tmp_path_factory) -> tuple[Path, dict[str, LinkOutcome]]:
    """Train two links and one without counts in two processes."""
    folder = tmp_path_factory.mktemp("together")
    outcomes = list(train_links([empty_link(), *city_links()], folder, QUICK, jobs=2))
    get_reusable_executor().shutdown(wait=True)
    assert len(outcomes) == 3
    return folder, {outcome.link_id: outcome for outcome in outcomes}


class TestTrainLinks:
    def test_writes_one_artifact_a_link_with_what_it_is(self, trained_together):
        folder, _ = trained_together
        assert sorted(path.name for path in folder.iterdir()) == ["Ba", "Cf"]
        model, about = load_model(folder / "Ba")
        assert about["link_id"] == "Ba"
        assert about["plan"]["algorithm"] == model.algorithm == "KR_SML"
        assert about["trained_from"] == "2025-08-31T22:00:00+00:00"
        assert set(about["held_out"]) == {"candidate", "KR", "profile", "last_week"}

    def test_one_links_failure_does_not_stop_the_others(self, trained_together):
        _, outcomes = trained_together
        assert outcomes["Zz"].state == "failed"
        assert "can be learnt from" in outcomes["Zz"].reason
        assert [outcomes[name].state for name in ("Ba", "Cf")] == ["trained", "trained"]

    def test_an_unexpected_exception_is_one_links_failure(self, tmp_path):
        link = city_links(1)[0]
        (tmp_path / link.link_id).write_text("a file where the artifact's folder should go")
        outcome = train_link(LinkTraining(link, QUICK), tmp_path)
        assert outcome.state == "failed"
        assert "FileExistsError" in outcome.reason

    def test_resume_keeps_what_came_from_the_same_counts_and_plan(self, tmp_path):
        links = city_links()
        list(train_links(links[:1], tmp_path, QUICK, jobs=1))
        states = {o.link_id: o.state for o in train_links(links, tmp_path, QUICK, jobs=1, resume=True)}
        assert states == {"Ba": "kept", "Cf": "trained"}
        links[0].counts[100] += 1
        assert next(train_links(links[:1], tmp_path, QUICK, jobs=1, resume=True)).state == "trained"
        other = TrainingPlan(lags=10, n_neighbors=8, held_out_days=4, max_iter=3, mu=(1e-3,))
        assert next(train_links(links[:1], tmp_path, other, jobs=1, resume=True)).state == "trained"

    def test_resume_trains_a_damaged_artifact_anew(self, tmp_path):
        links = city_links(1)
        list(train_links(links, tmp_path, QUICK, jobs=1))
        (tmp_path / "Ba" / "memory.npy").write_bytes(b"")
        assert next(train_links(links, tmp_path, QUICK, jobs=1, resume=True)).state == "trained"
        load_model(tmp_path / "Ba")

    @pytest.mark.parametrize("link_id", [".", "..", ".hidden"])
    def test_ids_of_dots_stay_inside_the_folder(self, link_id):
        assert folder_name(link_id) == f"%2E{link_id[1:]}"


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("counts") / "city.csv.gz"
    write_csv(sample_city(links=2, days=12), file)
    return file


class TestTrainCommand:
    def run(self, *arguments: object) -> Result:
        """Run the command in this process, because to start one takes longer than the work."""
        return CliRunner().invoke(cli, ["train", "--algorithm", "KR_SML", *map(str, arguments), "--jobs", "1"])

    def test_trains_a_file_and_prints_a_summary(self, counts, tmp_path):
        options = ["--output", tmp_path / "models", "--lags", "6", "--held-out-days", "3", "--jobs", "1"]
        done = subprocess.run(
            [FLOWCAST, "train", "--algorithm", "KR", counts, *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0
        assert "2 trained, 0 kept, 0 failed" in done.stdout
        assert "rows" in done.stderr
        load_model(tmp_path / "models" / "Cf")

    def test_prints_json_for_machines(self, counts, tmp_path):
        plan = ["--lags", 12, "--held-out-days", 3, "--algorithm", "KR"]
        done = self.run(counts, "--output", tmp_path / "models", *plan, "--json")
        rows = json.loads(done.stdout)
        assert [row["link_id"] for row in rows] == ["Ba", "Cf"]
        assert {row["state"] for row in rows} == {"trained"}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nowhere.csv"], "nowhere.csv"),
            (["{counts}", "--algorithm", "LSTM"], "algorithm='LSTM' is refused"),
            (["{counts}", "--zone", "Mars/Olympus"], "'Mars/Olympus' is refused"),
            (["{counts}", "--slot-minutes", "7"], "--slot-minutes=7 is refused"),
            (["{counts}", "--neighbors", "0"], "train: --neighbors=0 is refused"),
            (["{counts}", "--lags", "0"], "lags=0 is refused"),
            (["{counts}", "--jobs", "0"], "jobs=0 is refused"),
            (["{counts}", "--slot-minutes", "5"], "counts cannot be split"),
            (["{counts}", "--format", "papyrus"], "--format='papyrus' is refused"),
        ],
    )
    def test_prints_in_one_line_what_is_wrong(self, counts, tmp_path, arguments, message):
        given = [argument.format(counts=counts) for argument in arguments]
        done = CliRunner().invoke(cli, ["train", *given, "--output", str(tmp_path / "models")])
        assert done.exit_code == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr

    def test_shorter_rows_are_summed_and_any_columns_can_be_named(self, tmp_path):
        file, start = tmp_path / "lane.csv", datetime(2025, 9, 1)
        times = [start + timedelta(minutes=20 * i) for i in range(3 * 24 * 12)]
        file.write_text("Time;Vol\n" + "".join(f"{at:%Y-%m-%d %H:%M};{at.hour}\n" for at in times))
        options = ["--map", "slot_start=Time,count=Vol", "--link", "A7", "--zone", "UTC", "--slot-minutes", 60]
        plan = ["--algorithm", "KR", "--lags", 4, "--held-out-days", 2]
        done = self.run(file, "--output", tmp_path / "models", *options, *plan)
        assert done.exit_code == 0, done.stderr
        assert "rows of 20 minutes are summed into 288 slots of 60 minutes" in done.stderr
        load_model(tmp_path / "models" / "A7")

    def test_an_output_that_is_a_file_is_refused(self, counts, tmp_path):
        (tmp_path / "taken").write_text("")
        done = self.run(counts, "--output", tmp_path / "taken")
        assert done.exit_code == 2
        assert "Traceback" not in done.output

    def test_a_run_that_trains_nothing_fails(self, tmp_path):
        file = tmp_path / "short.csv"
        file.write_text("link_id,slot_start,count\nGb,2025-09-01T00:00:00Z,4\n")
        done = self.run(file, "--output", tmp_path / "models")
        assert done.exit_code == 1
        assert "0 trained, 0 kept, 1 failed" in done.stdout

    def test_ctrl_c_leaves_whole_artifacts_and_resume_goes_on(self, tmp_path):
        file, models = tmp_path / "city.csv", tmp_path / "models"
        write_csv(sample_city(links=6, days=14), file)
        options = ["--algorithm", "KR_SML", "--output", str(models), "--lags", "12", "--jobs", "2"]
        command = [str(FLOWCAST), "train", str(file), *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            wait_until(lambda: list(models.glob("[A-Z]*")))
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
            _, printed = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 130
        assert "--resume continues" in printed
        done = [folder.name for folder in models.glob("[A-Z]*")]
        assert 0 < len(done) < 6
        for name in done:
            load_model(models / name)
        rest = self.run(file, "--output", models, "--lags", 12, "--resume")
        assert rest.exit_code == 0
        assert "0 failed" in rest.stdout
        assert len(list(models.glob("[A-Z]*"))) == 6
        assert not list(models.glob(".*"))


class TestSampleCityCommand:
    def test_writes_counts_and_links(self, tmp_path):
        arguments = ["--links", "5", "--days", "9", "--output", tmp_path / "c.csv", "--geojson", tmp_path / "c.json"]
        done = subprocess.run([FLOWCAST, "sample-city", *arguments], capture_output=True, text=True, check=True)
        assert "synthetic" in done.stderr
        assert (tmp_path / "c.csv").read_text().startswith("link_id,slot_start,count")
        assert len(json.loads((tmp_path / "c.json").read_text())["features"]) == 5

    def test_refuses_a_city_without_links(self, tmp_path):
        done = CliRunner().invoke(cli, ["sample-city", "--links", "0", "--output", str(tmp_path / "c.csv")])
        assert done.exit_code == 2
        assert "links=0" in done.stderr
