"""Check how much memory something takes."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

MEGABYTE = 1 << 20


@contextmanager
def little_memory(most: int = 8 * MEGABYTE) -> Iterator[None]:
    """Check that a block allocates less than so many bytes at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
