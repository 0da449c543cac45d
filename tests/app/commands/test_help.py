"""The help of every command: an example that its options allow, and the values of every choice."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from app.cli import cli
from app.commands.settings import KEPT
from app.counts.importers.reader import AUTO, layouts
from app.evaluation.plan import PROTOCOLS
from app.keys.tables import Scope
from app.training.schemas import Algorithm, ContextPart

CHOICES = {
    ("import", "--format"): [AUTO, *layouts()],
    ("train", "--format"): [AUTO, *layouts()],
    ("evaluate", "--format"): [AUTO, *layouts()],
    ("evaluate", "--protocol"): PROTOCOLS,
    ("train", "--algorithm"): Algorithm.__args__,
    ("train", "--context"): ContextPart.__args__,
    ("keys create", "--scopes"): list(Scope),
    ("settings", "--copy-secret"): KEPT,
    ("settings", "--keep-secrets"): KEPT,
}


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a command and all commands below it, with their names."""
    yield name, command
    if hasattr(command, "list_commands"):
        for inner in command.list_commands(None):
            yield from commands(command.get_command(None, inner), f"{name} {inner}".strip())


COMMANDS = dict(commands(typer.main.get_command(cli)))


def parse(arguments: list[str]) -> str:
    """Parse a command line without executing it; return the name of its command."""
    command, names = COMMANDS[""], list[str]()
    while hasattr(command, "list_commands"):
        names.append(arguments.pop(0))
        command = command.get_command(None, names[-1])
    command.make_context(names[-1], arguments)
    return " ".join(names)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example_that_can_be_called(name):
    _, _, shown = COMMANDS[name].help.partition("Example:")
    examples = [line.strip() for line in shown.strip().splitlines()]
    assert examples
    for example in examples:
        program, *arguments = shlex.split(example)
        assert program == "flowcast"
        assert parse(arguments).startswith(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_the_example_and_no_regular_expression(name):
    shown = CliRunner().invoke(cli, [*name.split(), "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert "flowcast" in shown.stdout.partition("Example:")[2]
    assert not re.search(r"\[\^|\]\{|\\[dwx]|\[A-Z|\[0-9", shown.stdout)


@pytest.mark.parametrize(("command", "option"), CHOICES)
def test_help_lists_the_values_of_a_choice(command, option):
    help_text = next(one.help for one in COMMANDS[command].params if option in one.opts)
    assert not [value for value in CHOICES[command, option] if value not in re.findall(r"[\w-]+", help_text)]
