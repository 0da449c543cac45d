"""How far the learning of a network is, on a bar of its own."""

from __future__ import annotations

from rich.progress import Progress, TaskID

from app.commands.console import notes

WORDS = {
    "context": "the context of each day",
    "metric": "the metric",
    "memory": "the memories",
    "shares": "what the memories may say",
}


class NetworkProgress:
    """Shows the parts of a network's learning as they come; where there is no terminal, each by a line."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar: TaskID | None = None
        self._part = ""

    def report(self, part: str, done: int, of: int) -> None:
        """Show that so many of the steps of a part are done."""
        words = f"network: {WORDS.get(part, part)}"
        if self._bar is None:
            self._bar = self._progress.add_task(words, total=of)
        if part != self._part:
            self._part = part
            if not notes.is_terminal:
                notes.print(words)
        self._progress.update(self._bar, description=words, completed=done + 1, total=of)
