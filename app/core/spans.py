"""Spans of time: from a second to another, and how what was left out of one is filled in."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from app.core.errors import Invalid
from app.core.times import unix_seconds

SECONDS_A_DAY = 86_400


class Span(NamedTuple):
    """From a second to another, the last one excluded, in Unix seconds."""

    begin: int
    end: int

    def slots(self, slot_seconds: int) -> range:
        """List the starts of the slots in the span, on the grid of their length."""
        first = -(-self.begin // slot_seconds) * slot_seconds
        return range(first, self.end, slot_seconds)


def check_order(begin: datetime | None, end: datetime | None) -> None:
    """Refuse a span that ends before it begins."""
    if begin is not None and end is not None and begin >= end:
        raise Invalid.field("from", begin.isoformat(), f"must lie before to={end.isoformat()}")


def read_span(begin: datetime | None, end: datetime | None, newest_end: int | None, length: int) -> Span | None:
    """Fill in what was left out: the end is that of the newest count, the start lies ``length`` seconds before.

    None where nothing was given and there is no count to go by.
    """
    check_order(begin, end)
    last = newest_end if end is None else unix_seconds(end)
    if last is None:
        if begin is None:
            return None
        last = unix_seconds(begin)
    return Span(max(0, last - length) if begin is None else unix_seconds(begin), last)
