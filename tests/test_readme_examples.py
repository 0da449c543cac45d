"""Examples of the README and of docs/, run as written: curl and Python against a service, backups with real tools."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.demo.city import City, links_geojson, sample_city
from app.settings import settings_from_environment
from tests.support.data import running_in_ci
from tests.support.every_table import contents, fill
from tests.support.postgresql import programs
from tests.support.services import ADMIN_KEY, Service, environment, running_service
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.journey


ROOT = Path(__file__).parents[1]
WITH_SERVICE = ("README.md", "docs/api.md")  # in this order
WITHOUT_SERVICE = ("docs/artifact.md", "docs/model-for-data-scientists.md", "docs/sample-city.md")
ELSEWHERE = ("docs/getting-started.md",)  # tests/journeys/test_getting_started.py runs it
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
FIRST_SLOT, TRAINED_SLOTS = 11 * 96, 25 * 96  # of the sample city; the rest of the morning comes after training
STORED_SLOTS = TRAINED_SLOTS + 33
TOOLS = Path(sys.executable).parent


class Example(NamedTuple):
    line: int
    language: str
    code: str
    shown: str | None  # the output on the page


def examples(text: str, *languages: str) -> list[Example]:
    """Return the fenced blocks in these languages, each with the JSON or text that follows it."""
    found: list[Example] = []
    fences = list(re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    for i, fence in enumerate(fences):
        if fence[1] not in languages:
            continue
        follows = fences[i + 1] if i + 1 < len(fences) else None
        prints = follows is not None and follows[1] in ("json", "text") and follows.start() - fence.end() < 3
        shown = follows[2] if prints and follows is not None else None
        found.append(Example(text.count("\n", 0, fence.start()) + 1, fence[1], fence[2], shown))
    return found


def need(tool: str) -> None:
    """Skip the test if a tool is missing, or fail it in CI."""
    if shutil.which(tool) is None:
        if running_in_ci():
            pytest.fail(f"{tool} is not installed")
        pytest.skip(f"{tool} is not installed")


def post_slots(service: Service, city: City, first: int, last: int) -> None:
    starts = [city.grid.start(city.first_slot + i).isoformat() for i in range(first, last)]
    for link_id, counts in city.counts.items():
        known = [(at, int(n)) for at, n in zip(starts, counts[first:last], strict=True) if not np.isnan(n)]
        batch = [{"link_id": link_id, "slot_start": at, "count": n} for at, n in known]
        status, answer = service.request("POST", "/v1/counts", {"counts": batch})
        assert status == 200, answer


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start a service with a few links of the sample city, Ba with a trained model, as after ``make demo``."""
    folder = tmp_path_factory.mktemp("readme")
    url = f"sqlite:///{folder}/flowcast.db"
    city = sample_city(links=3, days=28)
    with running_service(url, folder, FLOWCAST_WEBHOOK_HOSTS="control.example.org") as running:
        status, answer = running.request("POST", "/v1/links", links_geojson(city))
        assert status in (200, 201), answer
        post_slots(running, city, FIRST_SLOT, TRAINED_SLOTS)
        small = ("--lags", "8", "--held-out-days", "4", "--days", "14", "--jobs", "1")
        train = ("train", "--from-database", "--links", "Ba", "--algorithm", "KR_SML", "--register", "--activate")
        with pytest.MonkeyPatch.context() as patched:
            for name, value in environment(url, folder).items():
                patched.setenv(name, value)
            settings_from_environment.cache_clear()
            trained = CliRunner().invoke(cli, [*train, *small])
        settings_from_environment.cache_clear()
        assert trained.exit_code == 0, trained.stderr
        post_slots(running, city, TRAINED_SLOTS, STORED_SLOTS)
        yield running


def run_example(example: Example, service: Service, folder: Path) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"KEY": ADMIN_KEY, "URL": service.url, "DEMO_PORT": str(service.port)}
    if example.language == "python":
        command = [sys.executable, "-c", example.code]
    else:
        # As written, but that an answer of 400 and above makes it fail.
        strict = 'set -euo pipefail\ncurl() { command curl --fail-with-body "$@" && echo; }\n'
        command = ["bash", "-c", strict + example.code]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=2 * WAIT_SECONDS, cwd=folder)


def same_kind(shown: Any, came: Any, at: str = "answer") -> None:
    """Check that an answer has the shape shown: keys, kinds of values, words; times and figures are its own."""
    if isinstance(shown, dict):
        assert isinstance(came, dict), at
        assert list(shown) == list(came), at
        for key in shown:
            same_kind(shown[key], came[key], f"{at}.{key}")
    elif isinstance(shown, list):
        assert isinstance(came, list), at
        assert len(shown) == len(came), at
        for i, (one, other) in enumerate(zip(shown, came, strict=True)):
            same_kind(one, other, f"{at}[{i}]")
    elif isinstance(shown, str) and not at.endswith("request_id"):
        assert isinstance(came, str), at
        if is_time(shown):
            assert is_time(came), at
        elif at.endswith(".method"):  # the demo has experts; here links are trained by themselves
            assert {shown, came} <= {"ENSEMBLE", "KR_SML"}, at
        else:
            assert shown == came, at
    elif isinstance(shown, int | float) and not isinstance(shown, bool):
        assert isinstance(came, int | float), at
        if isinstance(shown, int):
            assert shown == came, at
    else:
        assert type(shown) is type(came), at


def is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def test_the_examples_work_as_written_and_print_what_is_shown(service, tmp_path):
    need("curl")
    todo = [(page, example) for page in WITH_SERVICE for example in examples((ROOT / page).read_text(), "sh", "python")]
    assert {("README.md", "sh"), ("docs/api.md", "sh"), ("docs/api.md", "python")} == {
        (page, example.language) for page, example in todo
    }
    assert sum(example.shown is not None for _, example in todo) >= 7
    for page, example in todo:
        where = f"{page}:{example.line}"
        done = run_example(example, service, tmp_path)
        shown = example.shown
        if shown is not None and '"title"' in shown:  # a refusal, which is what the example is about
            assert done.returncode == 22, f"{where}: {done.stdout} {done.stderr}"
        else:
            assert done.returncode == 0, f"{where}: {done.stdout} {done.stderr}"
        if shown is not None and example.language == "python":
            assert done.stdout == shown, where
        elif shown is not None:
            same_kind(json.loads(shown), json.loads(done.stdout), where)


def test_every_call_of_the_api_has_an_example(openapi_document):
    code = "".join(example.code for example in examples((ROOT / "docs" / "api.md").read_text(), "sh", ""))
    called = set()
    for command in code.split("curl ")[1:]:
        method = re.search(r"-X (\w+)", command)
        sends = re.search(r"(-d|--data-binary|--form) ", command)
        called.add((method[1] if method else "POST" if sends else "GET", command.split("$URL")[1].split('"')[0]))
    without = [
        f"{method.upper()} {path}"
        for path, methods in openapi_document["paths"].items()
        for method in methods
        if not any(
            method.upper() == verb and re.fullmatch(re.sub(r"{\w+}", "[^/?]+", path), address.split("?")[0])
            for verb, address in called
        )
    ]
    assert not without


@pytest.mark.parametrize("page", WITHOUT_SERVICE)
def test_examples_that_need_no_service_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = examples((ROOT / page).read_text(), "python")
    assert blocks
    for block in blocks:
        exec(compile(block.code, page, "exec"), {})


def test_every_block_of_sh_and_python_is_run():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    with_code = {str(page.relative_to(ROOT)) for page in pages if examples(page.read_text(), "python", "sh")}
    assert with_code == {*WITH_SERVICE, *WITHOUT_SERVICE, *ELSEWHERE}
    assert not [page for page in WITHOUT_SERVICE if examples((ROOT / page).read_text(), "sh")]


def operations(heading: str) -> list[str]:
    """Return the blocks of commands below a heading, up to the next one."""
    section = re.split(r"^#{2,3} ", OPERATIONS.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return [example.code for example in examples(section, "")]


def run_operations(code: str, folder: Path, path: str, **variables: str) -> str:
    variables = os.environ | {"PATH": f"{path}:{os.environ['PATH']}"} | variables
    done = subprocess.run(
        ["bash", "-c", "set -euo pipefail\n" + code], env=variables, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def put_artifact(folder: Path) -> Path:
    artifact = folder / "models" / "A" / "1" / "manifest.json"
    artifact.parent.mkdir(parents=True)
    artifact.write_text("{}")
    return artifact


NEWEST = "here=$(ls -d backup/* | tail -1)\n"


def at(time_of_day: str) -> str:
    """Return the shell's definition of a day on which it is this time."""
    return f"date() {{ command date --date='2026-11-18 {time_of_day}' \"$@\"; }}\n"


class TestBackups:
    def test_sqlite_backed_up_twice_a_day_in_both_ways_and_restored(self, tmp_path):
        need("sqlite3")
        back_up, restore = operations("SQLite")
        own = re.search(r"or (sqlite3 .*)$", back_up, re.MULTILINE)
        assert own
        url = f"sqlite:///{tmp_path}/flowcast.db"
        fill(url)
        artifact, before = put_artifact(tmp_path), contents(url)
        earlier = f"({at('08:00')}flowcast() {{ :; }}\n{back_up})"  # whose folder is what matters
        by_itself = re.sub(r"^flowcast db copy .*$", lambda _: own[1], back_up, flags=re.MULTILINE)
        assert by_itself != back_up
        code = f"{earlier}\n{at('20:00')}{back_up}\n{at('22:00')}{by_itself}"
        run_operations(code, tmp_path, str(TOOLS), FLOWCAST_DATABASE_URL=url)
        backups = sorted((tmp_path / "backup").iterdir())
        assert len(backups) == 3
        for newest in backups[:0:-1]:  # the first has no database
            shutil.rmtree(tmp_path / "models")
            (tmp_path / "flowcast.db").write_bytes(b"spoilt")
            shown = run_operations(NEWEST + restore, tmp_path, str(TOOLS), FLOWCAST_DATABASE_URL=url)
            assert "as it should be" in shown
            assert contents(url) == before
            assert artifact.read_text() == "{}"
            shutil.rmtree(newest)

    def test_postgresql_dumped_and_restored(self, tmp_path, new_database):
        tools = programs()
        back_up, restore = operations("PostgreSQL")
        url = new_database("postgresql")
        fill(url)
        artifact, before = put_artifact(tmp_path), contents(url)
        variables = {"FLOWCAST_DATABASE_URL": url, "DATABASE": url}
        run_operations(back_up, tmp_path, f"{tools}:{TOOLS}", **variables)
        shutil.rmtree(tmp_path / "models")
        other = new_database("postgresql")  # an empty one, and then the one that is in use
        for target in (other, url):
            variables = {"FLOWCAST_DATABASE_URL": target, "DATABASE": target}
            run_operations(NEWEST + restore, tmp_path, f"{tools}:{TOOLS}", **variables)
            assert contents(target) == before
        assert artifact.exists()

    def test_nothing_is_lost_where_a_backup_cannot_be_read(self, tmp_path, new_database):
        tools = programs()
        urls = {"SQLite": f"sqlite:///{tmp_path}/flowcast.db", "PostgreSQL": new_database("postgresql")}
        artifact = put_artifact(tmp_path)
        for heading, url in urls.items():
            back_up, restore = operations(heading)
            fill(url)
            before = contents(url)
            variables = {"FLOWCAST_DATABASE_URL": url, "DATABASE": url}
            run_operations(back_up, tmp_path, f"{tools}:{TOOLS}", **variables)
            for how in ("cut short", "absent"):
                for file in (tmp_path / "backup").rglob("*.*"):
                    if how == "absent":
                        file.unlink()
                    elif file.suffix != ".db":
                        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
                # As a shell takes it that goes on after what failed.
                code = f"set +euo pipefail\n{NEWEST}{restore}"
                with pytest.raises(AssertionError):
                    run_operations(code, tmp_path, f"{tools}:{TOOLS}", **variables)
                assert contents(url) == before, how
                assert artifact.exists(), how
            shutil.rmtree(tmp_path / "backup")

    def test_sqlite_moved_to_postgresql_and_pruned(self, tmp_path, new_database):
        (move,) = operations("From SQLite to PostgreSQL")
        (prune,) = operations("Retention")
        fill(f"sqlite:///{tmp_path}/flowcast.db")
        target = new_database("postgresql")
        named = "postgresql://flowcast@localhost/flowcast"
        assert named in move
        first, *rest = move.splitlines()
        assert first.startswith("createuser ")  # which the tests' own databases have no need of
        code = "\n".join(rest).replace(named, f"'{target}'")
        assert "rows copied and compared" in run_operations(code, tmp_path, str(TOOLS))
        assert contents(target) == contents(f"sqlite:///{tmp_path}/flowcast.db")
        shown = run_operations(prune, tmp_path, str(TOOLS), FLOWCAST_DATABASE_URL=target)
        assert shown.count("counts") >= 2
        assert len(contents(target)["counts"]) == 1  # of the year 2096

    def test_the_step_to_go_back_to_exists(self, tmp_path, sqlite_template):
        (back,) = operations("Upgrade and roll back")
        shutil.copy(sqlite_template, tmp_path / "flowcast.db")  # of the newest step
        url, code = f"sqlite:///{tmp_path}/flowcast.db", back.replace("      #", " --yes  #")
        assert "step 0001" in run_operations(code, tmp_path, str(TOOLS), FLOWCAST_DATABASE_URL=url)
