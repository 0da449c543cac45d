"""End work in a thread once nobody wants it any more: a Dask worker can be told to forget a call, not to end it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_SECONDS = 0.5


class Abandoned(Exception):
    """Nobody waits for what this thread does."""


@contextmanager
def ended_when_abandoned(wanted: Callable[[], bool]) -> Iterator[None]:
    """Raise `Abandoned` in this thread, wherever it is in Python code, once its work is wanted no more."""
    thread, over, lock = threading.get_ident(), threading.Event(), threading.Lock()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            if not wanted():
                with lock:  # never after the block has ended: the thread would be about something else
                    if not over.is_set():
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Abandoned))
                return

    watcher = threading.Thread(target=watch, name="ended-when-abandoned", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            over.set()
        watcher.join()
