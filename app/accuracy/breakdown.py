"""Cut a link's span where the hour or day changes, and where the same local slot a week before lies elsewhere.

The slots of a piece belong to one part, and are all the same number of seconds from those of the week before.
A week is 167 or 169 hours long where the clocks changed in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from app.core.times import SECONDS_A_DAY, Span, instant_of
from app.links.queries import LinkInfo

WEEK = 7 * SECONDS_A_DAY
HALF_DAY = SECONDS_A_DAY // 2


class Piece(NamedTuple):
    """Slots that start from ``begin`` to before ``end``, and what to add for the same local slot a week before."""

    part: int  # its place among the parts; -1 for what lies before them
    begin: int
    end: int
    week_before: int | None  # None where the clocks skipped it


class _Offset(NamedTuple):
    """A time with one offset from UTC, in slots rounded down: by so many a local slot's number is ahead."""

    begin: int
    end: int
    slots: int


def cut_pieces(link: LinkInfo, span: Span, parts: Sequence[Span] = ()) -> list[Piece]:
    """Cut a span into pieces; parts follow each other up to its end, and what lies before them is in none."""
    if span.begin >= span.end:
        return []
    weeks = list(_weeks_before(link, span))
    part_begins, week_begins = [part.begin for part in parts], [begin for begin, _ in weeks]
    edges = sorted({*week_begins, *part_begins, *span})
    return [
        Piece(bisect_right(part_begins, begin) - 1, begin, end, weeks[bisect_right(week_begins, begin) - 1][1])
        for begin, end in pairwise(edges)
    ]


def _weeks_before(link: LinkInfo, span: Span) -> Iterator[tuple[int, int | None]]:
    """Yield from when on what is to be added to a slot's start; of a local time that came twice, the first is meant."""
    offsets = list(_offsets(link, Span(span.begin - WEEK - 2 * SECONDS_A_DAY, span.end)))
    for now in offsets:
        done = max(now.begin, span.begin)
        for then in offsets:
            back = (now.slots - then.slots) * link.slot_seconds - WEEK
            begin, end = max(done, then.begin - back), min(now.end, then.end - back)
            if begin < end:
                if done < begin:
                    yield done, None
                yield begin, back
                done = end
        if done < now.end:
            yield done, None


def _offsets(link: LinkInfo, span: Span) -> Iterator[_Offset]:
    zone = link.zone

    def offset_at(second: int) -> int:
        ahead = instant_of(second).astimezone(zone).utcoffset()
        assert ahead is not None
        return int(ahead.total_seconds() // 60) // link.slot_minutes

    def change(low: int, high: int, old: int) -> int:
        return low + bisect_left(range(low, high), True, key=lambda second: offset_at(second) != old)

    begin, offset = span.begin, offset_at(span.begin)
    for low in range(span.begin, span.end, HALF_DAY):  # no zone changes its clocks twice in half a day
        high = min(low + HALF_DAY, span.end)
        if (after := offset_at(high)) != offset:
            yield _Offset(begin, at := change(low, high, offset), offset)
            begin, offset = at, after
    yield _Offset(begin, span.end, offset)
