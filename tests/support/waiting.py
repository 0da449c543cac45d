"""Waiting for conditions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_SECONDS = 60.0  # far longer than any condition takes
TRAINING_SECONDS = 300.0  # for training, because a worker runs at low priority
POLL_SECONDS = 0.1

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None], *, seconds: float = WAIT_SECONDS, explain: Callable[[], object] = lambda: ""
) -> T:
    """Return the first true value of a condition; raise ``AssertionError`` if there is none in time.

    Parameters
    ----------
    condition : callable
        Called repeatedly. It may raise to end the wait early.
    seconds : float
        The deadline.
    explain : callable
        Called when the deadline has passed, for the error's message.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s; the last value was {value!r}. {explain()}")
        time.sleep(POLL_SECONDS)
    return value
