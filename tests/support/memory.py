"""A limit on the memory that a block allocates."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

MEGABYTE = 1 << 20


@contextmanager
def limit_memory(max_bytes: int = 8 * MEGABYTE) -> Iterator[None]:
    """Assert that a block has less than ``max_bytes`` allocated at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < max_bytes
    finally:
        tracemalloc.stop()
