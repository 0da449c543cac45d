"""Settings that are refused."""

import pytest
import typer

from app.commands.database import read_settings


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("FLOWCAST_MAX_BATCH", "x", "must be a whole number"),
        ("FLOWCAST_AUTH", "maybe", "must be 'on' or 'off'"),
        ("FLOWCAST_DEFAULT_ZONE", "Mars", "must be an IANA name such as Europe/Berlin"),
    ],
)
def test_a_refused_setting_is_named_with_its_rule(monkeypatch, capsys, fresh_settings, name, value, rule):
    monkeypatch.setenv(name, value)
    with pytest.raises(typer.Exit):
        read_settings("serve")
    assert " ".join(capsys.readouterr().err.split()) == f"flowcast serve: {name} is refused; it {rule}"
