"""The window that accuracy is measured over, and the hours and days in it by the link's own clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from app.accuracy.schemas import By
from app.core.slots import from_local
from app.core.times import SECONDS_A_DAY, Span, instant_of, unix_seconds
from app.links.queries import LinkInfo

SECONDS = {"m": 60, "h": 3600, "d": SECONDS_A_DAY}
LINK_WINDOW = "^(?:[1-9][0-9]{0,5}m|[1-9][0-9]{0,3}h|[1-9][0-9]{0,2}d)$"
NETWORK_WINDOW = "^(?:[1-9][0-9]{0,3}m|[1-9][0-9]{0,2}h|(?:[1-9]|[12][0-9]|3[01])d)$"  # up to LONGEST_DAYS
LONGEST_DAYS = 42  # of all links; no window is longer
MOST_PARTS = 2000


def window_seconds(window: str) -> int:
    """Read a window such as 90m, 24h or 7d."""
    return int(window[:-1]) * SECONDS[window[-1]]


def parts(link: LinkInfo, span: Span, by: By) -> list[tuple[int, Span]]:
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
