"""End with the process one was started by, however that ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

LOOK_SECONDS = 0.5

_watched: set[int] = set()


def end_with(parent: int, end: Callable[[], object]) -> None:
    """Call ``end`` once the parent is gone; asked again about the same parent, do nothing."""
    if parent in _watched:
        return
    _watched.add(parent)
    threading.Thread(target=_watch, args=(parent, end), name="parent", daemon=True).start()


def _watch(parent: int, end: Callable[[], object]) -> None:
    # A process killed with -9 notifies nobody; its children find themselves with another parent.
    look = threading.Event()
    while os.getppid() == parent:
        look.wait(LOOK_SECONDS)
    end()
