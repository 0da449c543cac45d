"""The ``flowcast`` command."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

cli = typer.Typer(help="Forecast the traffic on every road link of a city.", add_completion=False)


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
