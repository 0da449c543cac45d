"""Rank the links of the network by their accuracy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isnan

from sqlalchemy.orm import Session

from app.accuracy.error_sums import ErrorSums, measures, total
from app.accuracy.queries import Wanted, network_sums
from app.accuracy.schemas import NetworkAccuracy, Order, RankedLink, Sort
from app.accuracy.window import LONGEST_DAYS, window_seconds
from app.core.errors import Invalid
from app.core.times import SECONDS_A_DAY, Span, instant_of, read_span
from app.counts.queries import newest_slot_end
from app.links.queries import all_links

CURSOR_PATTERN = "^(?:[0-9a-f]{16}|none)~[A-Za-z0-9._:-]{1,64}$"
LONGEST_RULE = f"must lie at most {LONGEST_DAYS} days before the end of the span"
LONGEST_SECONDS = LONGEST_DAYS * SECONDS_A_DAY
Place = tuple[bool, float, str]  # in the ranking: without a figure, the figure, the link


@dataclass(frozen=True)
class Ranking:
    """What is asked of the network's accuracy."""

    window: str = "24h"
    horizon: int = 1
    sort: Sort = Sort.RMSE
    order: Order = Order.DESC
    limit: int = 100
    cursor: str | None = None
    begin: datetime | None = None
    end: datetime | None = None

    def place(self, row: RankedLink) -> Place:
        """Return a link's place: first by figure, then by id, those without the figure last."""
        return self._place(getattr(row, self.sort.value), row.link_id)

    def after(self) -> Place | None:
        """Return the place that the page before ended at."""
        if self.cursor is None:
            return None
        figure, link_id = self.cursor.split("~", 1)
        return self._place(None if figure == "none" else struct.unpack(">d", bytes.fromhex(figure))[0], link_id)

    def cursor_at(self, row: RankedLink) -> str:
        """Write down a link's place."""
        value = getattr(row, self.sort.value)
        return f"{'none' if value is None else struct.pack('>d', value).hex()}~{row.link_id}"

    def _place(self, value: float | None, link_id: str) -> Place:
        if value is None or isnan(value):
            return True, 0.0, link_id
        return False, value if self.order is Order.ASC else -value, link_id


def network_accuracy(session: Session, asked: Ranking, floor: int) -> NetworkAccuracy:
    """Measure all links over a window that ends with the newest count of any, or over a given span, and rank them."""
    links = all_links(session)
    given = read_span(asked.begin, asked.end, newest_slot_end(session), window_seconds(asked.window))
    if given is not None and given.end - given.begin > LONGEST_SECONDS:
        begun = instant_of(given.begin).isoformat()
        raise Invalid.field("from", begun, LONGEST_RULE)
    span = given or Span(0, 0)
    found = network_sums(session, Wanted(span, asked.horizon), floor)
    slots = [len(span.slots(link.slot_seconds)) for link in links]
    sums = [found.get((link.link_key,), ErrorSums()) for link in links]
    each = zip(links, sums, slots, strict=True)
    rows = [RankedLink(**measures(errors, n), link_id=link.link_id) for link, errors, n in each]
    ranked = sorted(rows, key=asked.place)
    page = _page(ranked, asked)
    return NetworkAccuracy(
        **measures(total(sums), sum(slots)),
        mare_min_count=floor,
        from_=None if given is None else instant_of(span.begin),
        to=None if given is None else instant_of(span.end),
        horizon=asked.horizon,
        links_total=len(links),
        links=page,
        next_cursor=asked.cursor_at(page[-1]) if page and page[-1] is not ranked[-1] else None,
    )


def _page(ranked: Sequence[RankedLink], asked: Ranking) -> list[RankedLink]:
    after = asked.after()
    left = ranked if after is None else [row for row in ranked if asked.place(row) > after]
    return list(left[: asked.limit])
