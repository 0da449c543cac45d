"""Clocks that move when something waits, so that tests of pauses and deadlines need no time and no luck."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SteppedTime:
    """Stands in for the module ``time``: sleeping moves its clock."""

    def __init__(self, wall: float = 0.0) -> None:
        self.now, self._wall = 1000.0, wall - 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self._wall + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting for a timeout, add it up."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.waited += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing is left to do."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.waited


def run_in_virtual_time(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that sleeps and waits, without taking the time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
