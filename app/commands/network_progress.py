"""How far the learning of a network is, on a bar of its own."""

from __future__ import annotations

import time

from rich.progress import Progress, TaskID

from app.commands.console import notes
from app.training.stage_progress import seconds_left, share_done

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
