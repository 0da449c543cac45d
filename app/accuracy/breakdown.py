"""The window that accuracy is measured over, cut into local hours or days, and into pieces for last week's counts.

The slots of a piece belong to one part, and are all the same number of seconds from those of the same local time a
week before. A week is 167 or 169 hours long where the clocks changed in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from app.accuracy.schemas import By
from app.core.errors import worded
from app.core.slots import from_local
from app.core.times import SECONDS_A_DAY, Span, instant_of, unix_seconds
from app.links.queries import LinkInfo

SECONDS = {"m": 60, "h": 3600, "d": SECONDS_A_DAY}
WINDOW_RULE = "must be minutes, hours or days, such as 90m, 24h or 7d, and at most"
LINK_WINDOW = worded(
    "^(?:[1-9][0-9]{0,5}m|[1-9][0-9]{0,3}h|[1-9][0-9]{0,2}d)$", f"{WINDOW_RULE} 999999m, 9999h or 999d"
)
NETWORK_WINDOW = worded(  # up to LONGEST_DAYS
    "^(?:[1-9][0-9]{0,3}m|[1-9][0-9]{0,2}h|(?:[1-9]|[12][0-9]|3[01])d)$", f"{WINDOW_RULE} 9999m, 999h or 31d"
)
LONGEST_DAYS = 42  # of all links; no window is longer
MOST_PARTS = 2000
WEEK = 7 * SECONDS_A_DAY
HALF_DAY = SECONDS_A_DAY // 2


def window_seconds(window: str) -> int:
    """Read a window such as 90m, 24h or 7d."""
    return int(window[:-1]) * SECONDS[window[-1]]


def cut_parts(link: LinkInfo, span: Span, by: By) -> list[tuple[int, Span]]:
    """Cut a span into local hours or days, the newest 2,000 of them: the start of each, and what of it is in the span.

    An hour that comes twice in autumn is two hours, and a day has 23, 24 or 25 of them.
    """
    length, edge_after = (3600, _next_hour) if by is By.HOUR else (SECONDS_A_DAY, _next_midnight)
    # Each edge but the first lies after its slot's beginning, so one too many is looked for.
    edges = [max(span.begin, span.end - (MOST_PARTS + 1) * length)]
    edges[0] = _hour(link, edges[0]) if by is By.HOUR else _midnight(link, edges[0])
    while edges[-1] < span.end:
        edges.append(edge_after(link, edges[-1]))
    cut = [(begin, Span(max(begin, span.begin), min(end, span.end))) for begin, end in pairwise(edges)]
    return cut[-MOST_PARTS:]


def _hour(link: LinkInfo, second: int) -> int:
    local = instant_of(second).astimezone(link.zone)
    return second - 60 * local.minute - local.second


def _next_hour(link: LinkInfo, second: int) -> int:
    return _hour(link, second + 3600)


def _midnight(link: LinkInfo, second: int, days: int = 0) -> int:
    day = instant_of(second).astimezone(link.zone).date() + timedelta(days=days)
    return unix_seconds(from_local(datetime(day.year, day.month, day.day), link.zone, or_next=True))


def _next_midnight(link: LinkInfo, second: int) -> int:
    return max(_midnight(link, second, days=1), second + 1)


class Piece(NamedTuple):
    """Slots that start from ``begin`` to before ``end``, and the offset to the same local slot a week before."""

    part: int  # its place among the parts; -1 for what lies before them
    begin: int
    end: int
    week_before: int | None  # seconds to add to a start; None where the clocks skipped that slot


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
    """Yield times and the seconds to add from each on, for the same local time a week before; its first occurrence."""
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
