"""Output of the commands: results, notes, progress, refusals."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from app.training.stage_progress import seconds_left, share_done

# No emoji: a link id may hold colons, and :b: would come out as a picture.
notes = Console(stderr=True, highlight=False, emoji=False)
out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 120)

FAILED, REFUSED = 1, 2  # an interrupted command exits with 130, as Typer has it

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]

# A field at the beginning of a refusal, without the class of the plan and n_, which options do not have.
FIELD = re.compile(r"^(?:\w+: )?(?:n_)?([a-z_]+)=")

SILENT_SECONDS = 4.0  # after which a status line is printed again; checked often enough to keep below five
CHECK_SECONDS = 0.5

NETWORK_PARTS = {
    "context": "the context of each day",
    "metric": "the metric",
    "memory": "the memories",
    "shares": "the shares of the memories",
    "last memory": "the memories of all days",
}


def refuse(command: str, problem: object, exit_code: int = REFUSED) -> NoReturn:
    """Print in one line why a command cannot go on, and exit."""
    print_refusal(command, problem)
    raise typer.Exit(exit_code)


def print_refusal(command: str, problem: object) -> None:
    """Print in one line why a command refuses something; a value is named by its option."""
    if isinstance(problem, OSError) and problem.filename is not None:
        problem = f"{problem.filename}: {(problem.strerror or str(problem)).lower()}"
    problem = FIELD.sub(lambda found: f"--{found[1].replace('_', '-')}=", str(problem))
    notes.print(f"flowcast {command}: {problem}", style="red", soft_wrap=True, markup=False)


def progress_bar() -> Progress:
    """Return a progress bar that is removed at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=notes, transient=True)


class NetworkProgress:
    """Progress of a network's training; without a terminal, a line for each part."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar: TaskID | None = None
        self._part = ""
        self._began = 0.0

    def report(self, part: str, done: int, of: int) -> None:
        """Show how many of the steps of a part are done."""
        share = share_done(part, done, of)
        if self._bar is None:
            self._bar = self._progress.add_task("network", total=100)
        if share == 0.0:  # of this network, or of the next one
            self._began = time.monotonic()
        left = seconds_left(share, time.monotonic() - self._began)
        line = f"network: {NETWORK_PARTS[part]}" + ("" if left is None else f", about {left:.0f} s left")
        if part != self._part:
            self._part = part
            if not notes.is_terminal:
                notes.print(f"{line} ({share:.0%} done)")
        self._progress.update(self._bar, description=line, completed=round(100 * share))


class StatusLines:
    """Without a terminal, lines on what is under way: when it begins, and again after some seconds without a line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._status, self._began, self._printed = "", clock(), clock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-lines", daemon=True)

    def begin(self, status: str) -> None:
        """Print what begins now."""
        self._status, self._began = status, self._clock()
        self._print(status)

    def update(self, status: str) -> None:
        """Store the status that is printed when the next line is due."""
        self._status = status

    def print_if_due(self) -> None:
        """Print what is under way, and for how long, if no line was printed for some seconds."""
        now = self._clock()
        if self._status and now >= self._printed + SILENT_SECONDS:
            self._print(f"{self._status} ({now - self._began:.0f} s)")

    def _print(self, line: str) -> None:
        self._printed = self._clock()
        if not notes.is_terminal:
            notes.print(escape(line), soft_wrap=True)

    def _run(self) -> None:
        while not self._closed.wait(CHECK_SECONDS):
            self.print_if_due()

    def __enter__(self) -> StatusLines:
        if not notes.is_terminal:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
