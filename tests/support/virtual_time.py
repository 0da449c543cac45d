"""Clocks that advance when something waits, so that tests of pauses and deadlines do not depend on timing."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SteppedTime:
    """A replacement of the module ``time`` whose clock advances by sleeping."""

    def __init__(self, wall: float = 0.0) -> None:
        self.now, self._wall = 1000.0, wall - 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self._wall + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class _InstantSelector(selectors.DefaultSelector):
    """A selector that adds up timeouts instead of waiting for them."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.waited += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock advances to the next timer when nothing is ready."""

    def __init__(self) -> None:
        self._instant = _InstantSelector()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.waited


async def pause(seconds: float) -> None:
    """Wait, in virtual time."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    await asyncio.sleep(seconds)


def run_in_virtual_time(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that sleeps and waits, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
