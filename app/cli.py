"""The ``flowcast`` command."""

from __future__ import annotations

import atexit
import gc
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

# A command's module is loaded when it is called: a service that only serves does not need the libraries of training
# and reports.
COMMANDS = {
    "serve": "app.commands.serve:serve_command",
    "worker": "app.commands.worker:worker_command",
    "demo": "app.commands.demo:demo_command",
    "import": "app.commands.import_counts:import_command",
    "counts": "app.commands.counts:counts",
    "train": "app.commands.train:train_command",
    "evaluate": "app.commands.evaluate:evaluate_command",
    "models": "app.commands.models:models",
    "keys": "app.commands.keys:keys",
    "db": "app.commands.db:db",
    "settings": "app.commands.settings:settings_command",
    "sample-city": "app.commands.sample_city:sample_city_command",
}


class Commands(TyperGroup):
    """The commands, each loaded from its own module."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; return None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        found = getattr(import_module(module), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(cmd_name)(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command


cli = typer.Typer(cls=Commands, add_completion=False)


@cli.callback(invoke_without_command=True)
def flowcast(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Forecast the traffic on every road link of a city, from the counts its detectors already send.

    Example:

        flowcast serve --port 8000
    """
    if show_version:
        typer.echo(f"flowcast {version('flowcast')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line."""
    # Before it ends, the interpreter would search the 370,000 objects that were imported for garbage: 0.4 s a command.
    atexit.register(gc.freeze)
    cli()
