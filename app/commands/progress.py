"""Progress of long commands: lines where there is no terminal, and so no bar that moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from rich.markup import escape
from rich.progress import Progress, TaskID

from app.commands.console import notes
from app.training.stage_progress import seconds_left, share_done

SILENT_SECONDS = 4.0  # after which what is under way is printed again; looked at often enough to keep below five
LOOK_SECONDS = 0.5


class Heartbeat:
    """Prints what is under way: when it begins, and again whenever nothing was printed for some seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._doing, self._began, self._printed = "", clock(), clock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def begin(self, doing: str) -> None:
        """Print what begins now."""
        self._doing, self._began = doing, self._clock()
        self._print(doing)

    def update(self, doing: str) -> None:
        """Take note of how far it is, to be printed when it is time."""
        self._doing = doing

    def beat(self) -> None:
        """Print what is under way, and for how long, if it is time."""
        now = self._clock()
        if self._doing and now >= self._printed + SILENT_SECONDS:
            self._print(f"{self._doing} ({now - self._began:.0f} s)")

    def _print(self, words: str) -> None:
        self._printed = self._clock()
        if not notes.is_terminal:
            notes.print(escape(words), soft_wrap=True)

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.beat()

    def __enter__(self) -> Heartbeat:
        if not notes.is_terminal:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()


WORDS = {
    "context": "the context of each day",
    "metric": "the metric",
    "memory": "the memories",
    "shares": "what the memories may say",
    "last memory": "the memories of all days",
}


class NetworkProgress:
    """Shows how much of a network's learning is done; where there is no terminal, a line for each part."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar: TaskID | None = None
        self._part = ""
        self._began = 0.0

    def report(self, part: str, done: int, of: int) -> None:
        """Show that so many of the steps of a part are done."""
        share = share_done(part, done, of)
        if self._bar is None:
            self._bar = self._progress.add_task("network", total=100)
        if share == 0.0:  # of this network, or of the next one
            self._began = time.monotonic()
        left = seconds_left(share, time.monotonic() - self._began)
        words = f"network: {WORDS[part]}" + ("" if left is None else f", about {left:.0f} s left")
        if part != self._part:
            self._part = part
            if not notes.is_terminal:
                notes.print(f"{words} ({share:.0%} done)")
        self._progress.update(self._bar, description=words, completed=round(100 * share))
