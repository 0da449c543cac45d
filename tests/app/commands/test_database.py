"""Settings that are refused."""

import pytest
import typer

from app.commands.database import read_settings
from app.settings import NEVER_SHOWN, Settings


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("FLOWCAST_MAX_BATCH", "x", "must be a whole number"),
        ("FLOWCAST_AUTH", "maybe", "must be 'on' or 'off'"),
        ("FLOWCAST_DEFAULT_ZONE", "Mars", "must be an IANA name such as Europe/Berlin"),
        ("FLOWCAST_RETRAIN_JOBS", "0", "must be a number of processes, or -1 for one per core"),
    ],
)
def test_a_refused_setting_is_named_with_its_rule(monkeypatch, capsys, fresh_settings, name, value, rule):
    monkeypatch.setenv(name, value)
    with pytest.raises(typer.Exit):
        read_settings("serve")
    assert " ".join(capsys.readouterr().err.split()) == f"flowcast serve: {name}={value!r} is refused; it {rule}"


def test_values_that_may_be_secret_are_not_shown(monkeypatch, capsys, fresh_settings):
    secrets = [name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)]
    assert set(secrets) <= set(NEVER_SHOWN)
    for name in NEVER_SHOWN:
        monkeypatch.setenv(f"FLOWCAST_{name.upper()}", "change-me://hush")
        with pytest.raises(typer.Exit):
            read_settings("serve")
        monkeypatch.delenv(f"FLOWCAST_{name.upper()}")
        shown = capsys.readouterr().err
        assert f"FLOWCAST_{name.upper()} is refused" in shown
        assert "hush" not in shown
