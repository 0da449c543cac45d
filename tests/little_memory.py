"""Hold what is done inside to little memory."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

MEGABYTE = 1 << 20


@contextmanager
def little_memory(most: int = 8 * MEGABYTE) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
