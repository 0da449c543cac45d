"""``flowcast db`` and ``flowcast keys``."""

import asyncio
import json

import pytest
from typer.testing import CliRunner, Result

from app.cli import cli
from app.core.database import open_database
from app.keys.cache import ApiKeyCache
from app.settings import settings_from_environment
from tests.support.databases import on_sqlite


@pytest.fixture(autouse=True)
def environment(database_url, tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWCAST_DATABASE_URL", database_url)
    monkeypatch.setenv("FLOWCAST_ADMIN_KEY_FILE", str(tmp_path / "admin.key"))
    monkeypatch.delenv("FLOWCAST_ADMIN_KEY", raising=False)
    settings_from_environment.cache_clear()
    yield
    settings_from_environment.cache_clear()


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def create(**options: str) -> dict:
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    done = run("keys", "create", "--json", *flags)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


class TestDb:
    @pytest.mark.journey
    def test_upgrade_check_and_downgrade(self):
        assert "as it was" in run("db", "upgrade").stdout
        assert run("db", "check").exit_code == 0
        assert run("db", "downgrade", "base", stdin="n\n").exit_code == 1
        assert run("db", "check").exit_code == 0
        assert "step base" in run("db", "downgrade", "base", "--yes").stdout
        behind = run("db", "check")
        assert behind.exit_code == 1
        assert "flowcast db upgrade" in behind.stderr
        assert run("db", "upgrade").exit_code == 0
        assert run("db", "check").exit_code == 0

    def test_an_unknown_step_is_refused(self):
        refused = run("db", "downgrade", "nowhere", "--yes")
        assert refused.exit_code == 2
        assert "nowhere" in refused.stderr

    def test_a_later_step_is_none_to_go_back_to(self):
        assert run("db", "downgrade", "0002", "--yes").exit_code == 0
        assert run("db", "downgrade", "0003", "--yes").exit_code == 2
        assert run("db", "check").exit_code == 1
        assert run("db", "downgrade", "0002", "--yes").exit_code == 0  # it is there already

    @on_sqlite
    def test_a_database_that_cannot_be_opened_is_reported_in_one_line(self, monkeypatch):
        monkeypatch.setenv("FLOWCAST_DATABASE_URL", "postgresql://someone:hidden@127.0.0.1:1/none")
        settings_from_environment.cache_clear()
        failed = run("db", "check")
        assert failed.exit_code == 1
        assert failed.stderr.startswith("flowcast db check: ")
        assert len(failed.stderr.splitlines()) == 1
        assert "hidden" not in failed.stderr

    @on_sqlite
    def test_a_wrong_setting_is_named(self, monkeypatch):
        monkeypatch.setenv("FLOWCAST_DATABASE_URL", "mysql://hidden")
        settings_from_environment.cache_clear()
        refused = run("db", "check")
        assert refused.exit_code == 2
        assert "FLOWCAST_DATABASE_URL is refused" in refused.stderr
        assert "hidden" not in refused.stderr


class TestKeys:
    def test_a_created_key_is_valid(self, database_url):
        made = create(name="centre", scopes="read,admin", expires_in_days="3")
        assert made["scopes"] == ["read", "admin"]
        settings = settings_from_environment()
        engine = open_database(settings.database_url)
        caller = asyncio.run(ApiKeyCache(engine, settings).identify(made["key"], "127.0.0.1"))
        engine.dispose()
        assert caller.key_id == made["key_id"]

    def test_only_the_key_itself_goes_to_stdout(self):
        done = run("keys", "create", "--name", "centre")
        assert done.stdout.startswith("fc_")
        assert len(done.stdout.splitlines()) == 1
        assert "shown only now" in done.stderr

    def test_list_never_shows_the_key(self):
        made = create(name="[bold]centre", scopes="read")
        for arguments in (("keys", "list"), ("keys", "list", "--json")):
            shown = run(*arguments).stdout
            assert made["key_id"] in shown
            assert "[bold]centre" in shown
            assert made["key"] not in shown

    def test_revoke(self):
        admin, other = create(name="admin", scopes="admin"), create(name="other", scopes="read")
        assert run("keys", "revoke", other["key_id"]).exit_code == 0
        last = run("keys", "revoke", admin["key_id"])
        assert last.exit_code == 2
        assert "last one" in last.stderr
        assert run("keys", "revoke", "--force", admin["key_id"]).exit_code == 0
        states = {key["key_id"]: key["state"] for key in json.loads(run("keys", "list", "--json").stdout)["keys"]}
        assert states == {admin["key_id"]: "revoked", other["key_id"]: "revoked"}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["create", "--name", "x", "--scopes", "write"], "--scopes='write' is refused"),
            (["create", "--name", " "], "--name=' ' is refused"),
            (["create", "--name", "x", "--replaces", "none"], "key 'none' does not exist"),
            (["revoke", "none"], "key 'none' does not exist"),
        ],
    )
    @on_sqlite
    def test_what_breaks_a_rule_is_refused(self, arguments, message):
        refused = run("keys", *arguments)
        assert refused.exit_code == 2
        assert message in refused.stderr
