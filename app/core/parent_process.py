"""End a process when the process that started it has ended, even if that was killed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

POLL_SECONDS = 0.5

_watched: set[int] = set()


def end_with(parent: int, end: Callable[[], object]) -> None:
    """Call ``end`` once the parent has ended; a second call for the same parent does nothing."""
    if parent in _watched:
        return
    _watched.add(parent)
    threading.Thread(target=_watch, args=(parent, end), name="parent", daemon=True).start()


def _watch(parent: int, end: Callable[[], object]) -> None:
    # A process killed with -9 notifies no other; its children get another parent.
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(POLL_SECONDS)
    end()
