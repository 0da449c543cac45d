"""Let the event loop have its turn while a thread computes.

Python hands its lock on after 5 ms. A forecast that lies ready is sent in a tenth of that, and would wait for whatever
thread computes at the time. So work of many small steps pauses between them, every 0.3 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from time import perf_counter, sleep
from typing import TypeVar

TURN_SECONDS = 0.0003
# As short as can be: the kernel makes some 50 µs of it. Without any, the lock would be taken back before anybody woke.
PAUSE_SECONDS = 1e-6

Item = TypeVar("Item")


class _Turn(threading.local):
    began = 0.0


_turn = _Turn()


def give_way() -> None:
    """Pause for a moment if this thread was at work for 0.3 ms; the main thread waits for nobody."""
    now = perf_counter()
    if now - _turn.began < TURN_SECONDS:
        return
    if threading.current_thread() is not threading.main_thread():
        sleep(PAUSE_SECONDS)
        now = perf_counter()
    _turn.began = now


def rested() -> None:
    """Take note that this thread waited for something just now, so that others had their turn."""
    _turn.began = perf_counter()


def in_turns(items: Iterable[Item]) -> Iterator[Item]:
    """Give one item after another, and way in between."""
    for item in items:
        yield item
        give_way()
