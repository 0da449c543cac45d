"""``flowcast import``: its output and exit code for good, bad and unreadable files."""

import gzip
import io
import json
import subprocess
import sys
import tracemalloc
from datetime import datetime
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from app.cli import cli
from app.commands import import_counts
from app.counts.importers import spool
from app.settings import settings_from_environment
from tests.support.count_files import (
    SIGNALS_HEADER,
    SURVEY_HEADER,
    WEBTRIS_HEADER,
    pems_row,
    pems_times,
    signals_row,
    survey_row,
    webtris_fields,
    webtris_row,
)

FLOWCAST = Path(sys.executable).with_name("flowcast")
OWN = "link_id,slot_start,count\nBa,2019-01-01T00:00:00Z,4\nBa,2019-01-01T00:15:00Z,\nBa,2019-01-01T00:30:00Z,-1\n"
SAMPLES = {
    "flowcast-csv": OWN,
    "flowcast-jsonl": '{"link_id": "Ba", "slot_start": "2019-01-01T00:00:00Z", "count": 4}\n',
    "pems-5min": "\n".join(pems_row(time, 4, observed=80) for time in pems_times(datetime(2019, 1, 1), 3)),
    "scats-signals": SIGNALS_HEADER + "\n" + signals_row("2006-10-02", [4] * 96, alarms=1),
    "scats-survey": SURVEY_HEADER + "\n" + survey_row("2006-10-02", [4] * 96),
    "webtris-daily": WEBTRIS_HEADER + "\n" + webtris_row("2019-01-01", "00:14:00", 4),
    "webtris-daily-json": json.dumps({"Rows": [webtris_fields("2019-01-01", "00:14:00", "4")]}),
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.csv"
    file.write_text(OWN)
    return file


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["import", *map(str, arguments)], input=stdin)


class TestReport:
    @pytest.mark.parametrize("layout", SAMPLES)
    def test_every_layout_is_reported(self, layout, tmp_path):
        file = tmp_path / "counts"
        file.write_text(SAMPLES[layout])
        done = run("--dry-run", "--json", file)
        assert done.exit_code == 0
        [report] = json.loads(done.stdout)
        assert report["layout"] == layout
        assert report["values"] == report["counts"] + report["gaps"] + report["refused"]
        assert report["counts"] == sum(link["counts"] for link in report["links"]) > 0
        assert report["imputed"] == (layout == "pems-5min")
        assert report["suspect"] == (96 if layout == "scats-signals" else 0)

    def test_reports_what_became_of_each_value(self, own):
        done = run("--dry-run", own)
        assert done.exit_code == 0
        assert f"{own}: flowcast-csv" in done.stdout
        assert "3 rows, 3 values = 1 counts (0 suspect, 0 imputed) + 1 gaps + 1 refused" in done.stdout
        assert "1 links, slots 2019-01-01T00:00Z to 2019-01-01T00:00Z" in done.stdout
        assert f"{own}, line 4: count='-1' is refused; it must be a whole number" in done.stdout
        assert "first slot" in done.stdout

    def test_reports_the_same_as_json(self, own):
        [report] = json.loads(run("--dry-run", "--json", own).stdout)
        assert report["error"] is None
        assert (report["first_slot"], report["last_slot"]) == ("2019-01-01T00:00Z", "2019-01-01T00:00Z")
        [refusal] = report["refusals"]
        assert (refusal["line"], refusal["field"], refusal["value"]) == (4, "count", "-1")
        assert report["reasons"] == {refusal["reason"]: 1}
        assert report["links"][0]["link_id"] == "Ba"

    def test_files_are_reported_one_by_one_packed_ones_and_standard_input_too(self, own, tmp_path):
        packed = tmp_path / "own.csv.gz"
        packed.write_bytes(gzip.compress(OWN.encode()))
        done = run("--dry-run", "--json", own, packed, "-", stdin=OWN.encode())
        assert [report["file"] for report in json.loads(done.stdout)] == [str(own), str(packed), "-"]
        assert {report["counts"] for report in json.loads(done.stdout)} == {1}

    def test_a_link_without_counts_is_listed_and_a_markup_in_a_name_is_text(self, tmp_path):
        file = tmp_path / "[bold]"
        file.write_text(SAMPLES["webtris-daily"] + "\n" + webtris_row("2019-01-01", "00:14:00", "", "M1/1"))
        done = run("--dry-run", file)
        assert "[bold]" in done.stdout
        assert "M1-1" in done.stdout
        [_, report] = json.loads(run("--dry-run", "--json", file).stdout)[0]["links"]
        assert report == {
            "link_id": "M25-4490A",
            "name": "M25/4490A",
            "zone": "Europe/London",
            "counts": 1,
            "first_slot": "2019-01-01T00:00Z",
            "last_slot": "2019-01-01T00:00Z",
        }

    def test_many_links_are_counted_and_not_listed(self, tmp_path):
        file = tmp_path / "many.csv"
        file.write_text("link_id,slot_start,count\n" + "".join(f"L{i},2019-01-01T00:00:00Z,4\n" for i in range(30)))
        done = run("--dry-run", file)
        assert "30 links" in done.stdout
        assert "L7" not in done.stdout

    @pytest.mark.parametrize(("wanted", "listed"), [(0, 0), (3, 3), (20, 20), (1000, 100)])
    def test_as_many_refusals_are_listed_as_wanted_and_kept(self, wanted, listed, tmp_path):
        file = tmp_path / "bad.csv"
        bad = "Ba,2019-01-01T00:00:00Z,-1\n"
        file.write_text("link_id,slot_start,count\n" + bad * 150)
        done = run("--dry-run", "--refusals", wanted, file)
        assert done.stdout.count("count='-1' is refused") == listed
        assert f"{150 - listed} refused values are not listed" in done.stdout
        assert "150 refused: must be a whole number" in done.stdout


class TestOptions:
    def test_format_zone_and_slot_minutes_reach_the_importer(self, tmp_path):
        file = tmp_path / "pems.txt"
        file.write_text(SAMPLES["pems-5min"])
        options = ["--format", "pems-5min", "--zone", "UTC", "--slot-minutes", 5]
        [report] = json.loads(run("--dry-run", "--json", *options, file).stdout)
        assert (report["counts"], report["first_slot"]) == (3, "2019-01-01T00:00Z")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--zone", "Mars/Olympus"], "'Mars/Olympus' is refused"),
            (["--slot-minutes", "7"], "slot-minutes=7 is refused"),
            (["--format", "papyrus"], "format='papyrus' is refused"),
            (["--refusals", "-1"], "Invalid value for '--refusals'"),
        ],
    )
    def test_a_wrong_option_is_refused_and_nothing_is_read(self, own, options, message):
        done = run("--dry-run", own, *options)
        assert done.exit_code == 2
        assert message in done.stderr
        assert not done.stdout


class TestWhatPeopleHave:
    FIVES = "Time;Vol\n" + "".join(f"2019-01-01 00:{minute:02};{minute}\n" for minute in range(0, 60, 5))

    def test_a_map_a_link_and_a_zone_read_any_csv(self, tmp_path):
        file = tmp_path / "lane.csv"
        file.write_text(self.FIVES)
        options = ["--map", "slot_start=Time,count=Vol", "--link", "lane-1", "--zone", "America/Los_Angeles"]
        done = run("--dry-run", file, *options)
        assert done.exit_code == 0, done.stderr
        assert "12 rows, 4 values = 4 counts" in done.stdout
        assert "rows of 5 minutes are summed into 4 slots of 15 minutes" in done.stdout
        [report] = json.loads(run("--dry-run", "--json", file, *options).stdout)
        assert (report["first_slot"], report["last_slot"]) == ("2019-01-01T08:00Z", "2019-01-01T08:45Z")
        [link] = report["links"]
        assert (link["link_id"], link["zone"], link["counts"]) == ("lane-1", "America/Los_Angeles", 4)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--map", "vehicles=Vol"], "must give a column to link_id"),
            (["--link", "A 7"], "must be 1 to 64 letters"),
            (["--map", "link_id=Vol", "--link", "A7"], "must be left out where the map"),
            (["--link", "A7", "--format", "scats-survey"], "is refused with map or link, which only flowcast-csv"),
            (["--link", "A7"], "has no column 'slot_start' among 'Time', 'Vol'; the option map names another"),
            ([], "Known layouts need these columns: flowcast-csv: link_id, slot_start, count"),
            (["--link", "A7", "--map", "slot_start=Time,count=Vol", "--zone", "UTC", "--slot-minutes", 12], "add up"),
        ],
    )
    def test_what_is_not_certain_is_refused_with_what_to_do(self, tmp_path, options, message):
        file = tmp_path / "lane.csv"
        file.write_text(self.FIVES)
        done = run("--dry-run", file, *options)
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())

    def test_the_help_has_an_example(self):
        shown = " ".join(run("--help").stdout.split())
        assert "flowcast import a.csv --map slot_start=Time,count=Vol --link A7 --zone Europe/Berlin" in shown

    @pytest.mark.journey
    def test_the_published_lane_is_summed(self, real_file):
        options = ["--map", "slot_start=local_start,count=count", "--link", "lane-1", "--zone", "America/Los_Angeles"]
        file = real_file.with_name("pems_lane_2016.csv.gz")
        [report] = json.loads(run("--dry-run", "--json", file, *options).stdout)
        assert (report["rows"], report["counts"], report["gaps"], report["refused"]) == (12_096, 4_032, 0, 0)


class TestStoring:
    @pytest.fixture(autouse=True)
    def database(self, tmp_path, monkeypatch):
        monkeypatch.setenv("FLOWCAST_DATABASE_URL", f"sqlite:///{tmp_path}/flowcast.db")
        monkeypatch.setenv("FLOWCAST_MODEL_STORE", str(tmp_path / "models"))
        settings_from_environment.cache_clear()
        yield
        settings_from_environment.cache_clear()

    def upgrade(self):
        assert CliRunner().invoke(cli, ["db", "upgrade"]).exit_code == 0

    def test_counts_are_stored_once_and_links_created_on_request(self, own):
        self.upgrade()
        done = run("--create-links", "--zone", "UTC", own)
        assert done.exit_code == 0, done.stderr
        assert "stored: 1 new, 0 replaced, 0 unchanged" in done.stdout
        assert "1 links created, 1 with a new forecast" in done.stdout
        [report] = json.loads(run("--json", own).stdout)
        assert (report["stored"], report["unchanged"], report["links_created"]) == (0, 1, 0)

    def test_new_links_need_a_zone_from_the_option_or_the_settings(self, own, monkeypatch):
        self.upgrade()
        refused = run("--create-links", own)
        assert refused.exit_code == 2
        assert "because the file names none: give --zone" in refused.stderr
        monkeypatch.setenv("FLOWCAST_DEFAULT_ZONE", "Australia/Melbourne")
        settings_from_environment.cache_clear()
        assert "1 links created" in run("--create-links", own).stdout

    def test_links_that_do_not_exist_are_named(self, own):
        self.upgrade()
        done = run(own)
        assert done.exit_code == 1
        assert "links that do not exist (--create-links makes them): Ba" in done.stdout
        assert "1 refused: must name a link that exists" in done.stdout

    def test_an_unreadable_file_leaves_the_others_stored(self, own):
        self.upgrade()
        done = run("--create-links", "--zone", "UTC", "nowhere.csv", own)
        assert done.exit_code == 2
        assert "1 new" in done.stdout

    def test_a_missing_schema_is_refused_in_one_line(self, own):
        done = run(own)
        assert done.exit_code == 2
        assert "flowcast db upgrade" in done.stderr
        assert "Traceback" not in done.stderr
        assert not done.stdout


class TestEnds:
    def test_a_file_of_which_more_is_refused_than_taken_is_reported_and_fails(self, own):
        own.write_text(OWN + "Ba,soon,4\n")
        done = run("--dry-run", own)
        assert done.exit_code == 1
        assert "+ 1 gaps + 2 refused" in done.stdout
        assert "more values were refused than accepted" in done.stderr

    def test_an_unreadable_file_does_not_stop_the_others(self, own, tmp_path):
        cut = tmp_path / "cut.csv.gz"
        cut.write_bytes(gzip.compress(OWN.encode())[:-20])
        done = run("--dry-run", "nowhere.csv", cut, own)
        assert done.exit_code == 2
        assert "nowhere.csv cannot be read" in done.stderr
        assert "cut.csv.gz is truncated" in done.stderr
        assert f"{own}: flowcast-csv" in done.stdout
        report = json.loads(run("--dry-run", "--json", "nowhere.csv", own).stdout)
        assert report[0] == {"file": "nowhere.csv", "error": "nowhere.csv cannot be read: No such file or directory"}

    def test_an_interruption_ends_with_130(self, own, monkeypatch):
        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(import_counts, "read_file", interrupted)
        assert run("--dry-run", own).exit_code == 130

    @pytest.mark.journey
    def test_the_installed_command_does_it_too(self, own):
        done = subprocess.run([FLOWCAST, "import", "--dry-run", own], capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert "1 counts" in done.stdout
        assert not done.stderr


@pytest.mark.journey
class TestLongFiles:
    def test_progress_is_shown_on_a_terminal(self, tmp_path, monkeypatch):
        file = tmp_path / "long.csv"
        file.write_text("link_id,slot_start,count\n" + "Ba,2019-01-01T00:00:00Z,4\n" * 6000)
        screen = io.StringIO()
        monkeypatch.setattr(import_counts, "notes", Console(file=screen, force_terminal=True))
        monkeypatch.setattr(import_counts, "LONG_FILE", 1000)
        assert run("--dry-run", file).exit_code == 0
        assert "reading" in screen.getvalue() or "rows" in screen.getvalue()

    def test_memory_does_not_grow_with_the_file(self, tmp_path, monkeypatch):
        """The rows of a link are the exception: all of them are needed for their sum."""
        monkeypatch.setattr(spool, "MOST_IN_A_GROUP", 1000)
        peaks = []
        for n in (2, 12):
            file = tmp_path / f"{n}.csv"
            rows = [f"L{i},2019-01-01T00:00:00Z,4\n" * 1000 for i in range(n)]
            file.write_text("link_id,slot_start,count\n" + "".join(rows))
            run("--dry-run", file)
            tracemalloc.start()
            assert run("--dry-run", file).exit_code == 0
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < peaks[0] + 100_000
