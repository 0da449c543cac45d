"""``flowcast counts``."""

import json

import pytest
from typer.testing import CliRunner, Result

from app.cli import cli
from app.core.database import open_database
from app.settings import settings_from_environment
from tests.support.databases import on_sqlite
from tests.support.stored import add_link, select_rows

SPAN = ("--from", "2025-09-01T00:15:00Z", "--to", "2025-09-01T02:00:00+01:00", "--reason", "detector fault")
FILE = "link_id,slot_start,count\n" + "".join(f"Ba,2025-09-01T00:{i * 15:02}:00Z,{i}\n" for i in range(4))


@pytest.fixture(autouse=True)
def database(database_url, tmp_path, monkeypatch, fresh_settings):
    monkeypatch.setenv("FLOWCAST_DATABASE_URL", database_url)
    monkeypatch.setenv("FLOWCAST_MODEL_STORE", str(tmp_path / "models"))
    settings_from_environment.cache_clear()
    engine = open_database(settings_from_environment().database_url)
    add_link(engine, "Ba")
    file = tmp_path / "counts.csv"
    file.write_text(FILE)
    assert CliRunner().invoke(cli, ["import", str(file)]).exit_code == 0
    yield engine
    engine.dispose()


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["counts", "delete", *arguments], input=stdin)


def left(engine) -> list[int]:
    return [count for (count,) in select_rows(engine, "SELECT count FROM counts ORDER BY slot_start")]


def test_counts_are_deleted_and_kept_among_the_corrections(database):
    done = run("Ba", *SPAN, "--yes", "--json")
    assert done.exit_code == 0, done.output
    deleted = json.loads(done.stdout)
    assert (deleted["link_id"], deleted["deleted"], deleted["reason"]) == ("Ba", 3, "detector fault")
    assert left(database) == [0]
    kept = select_rows(database, "SELECT count, reason FROM count_corrections ORDER BY slot_start")
    assert kept == [(n, "detector fault") for n in (1, 2, 3)]


@on_sqlite
def test_it_prompts_first_and_a_dry_run_deletes_nothing(database):
    assert "3 counts of link Ba would be deleted" in run("Ba", *SPAN, "--dry-run").stdout
    assert run("Ba", *SPAN, stdin="n\n").exit_code == 1
    assert left(database) == [0, 1, 2, 3]
    done = run("Ba", *SPAN, stdin="y\n")
    assert "3 counts of link Ba are deleted" in done.stdout
    assert left(database) == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Nowhere", *SPAN), "link 'Nowhere' does not exist"),
        (("Ba", *SPAN, "--from", "yesterday"), "--from='yesterday' is refused; it must be an RFC 3339 time"),
        (("Ba", *SPAN, "--from", "2026-01-01T00:00:00Z"), "must lie before to="),
        (("Ba", *SPAN, "--reason", " "), "--reason=' ' is refused; it must have 1 to 500 characters"),
    ],
)
@on_sqlite
def test_what_breaks_a_rule_is_refused_in_one_line(database, arguments, message):
    done = run(*arguments, "--yes")
    assert done.exit_code == 2
    assert message in done.stderr
    assert left(database) == [0, 1, 2, 3]
