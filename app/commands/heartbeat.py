"""Lines that show that a long command is alive where there is no terminal, and so no bar that moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from rich.markup import escape

from app.commands.console import notes

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
