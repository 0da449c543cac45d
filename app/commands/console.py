"""What the commands share: where they write, how they show progress, how they end."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# No emoji: a link id may hold colons, and :b: would come out as a picture.
notes = Console(stderr=True, highlight=False, emoji=False)
out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 120)

FAILED, REFUSED, INTERRUPTED = 1, 2, 130


def refuse(command: str, problem: object) -> NoReturn:
    """Print in one line why a command cannot go on, and exit."""
    notes.print(f"flowcast {command}: {escape(str(problem))}", style="red", soft_wrap=True)
    raise typer.Exit(REFUSED)


def progress_bar() -> Progress:
    """Return a progress bar that leaves nothing behind."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=notes, transient=True)
