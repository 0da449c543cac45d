"""The ``flowcast`` command."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from app.commands.evaluate import evaluate_command
from app.commands.sample_city import sample_city_command
from app.commands.train import train_command

cli = typer.Typer(help="Forecast the traffic on every road link of a city.", add_completion=False)
cli.command("train")(train_command)
cli.command("evaluate")(evaluate_command)
cli.command("sample-city")(sample_city_command)


@cli.callback(invoke_without_command=True)
def flowcast(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Forecast the traffic on every road link of a city, from the counts its detectors already send."""
    if show_version:
        typer.echo(f"flowcast {version('flowcast')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line."""
    cli()
