"""Rank the links of the network by their accuracy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from app.accuracy.figures import figures, groups
from app.accuracy.queries import Pairs, counts_with_forecasts
from app.accuracy.schemas import NetworkAccuracy, Order, RankedLink, Sort
from app.accuracy.window import window_seconds
from app.counts.queries import newest_slot_end
from app.links.queries import LinkInfo, all_links
from app.spans import Span, read_span
from app.web.instants import instant_of

CURSOR_PATTERN = "^(?:[0-9a-f]{16}|none)~[A-Za-z0-9._:-]{1,64}$"
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

    def place(self, row: RankedLink) -> Place:
        """Give a link's place: first by figure, then by id, those without the figure last."""
        return self._place(getattr(row, self.sort.value), row.link_id)

    def after(self) -> Place | None:
        """Give the place that the page before ended at."""
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
    """Measure all links over a window that ends with the newest count of any, and rank them."""
    links = all_links(session)
    span = read_span(None, None, newest_slot_end(session), window_seconds(asked.window))
    keys = [link.link_key for link in links]
    begin, end = span or Span(0, 0)
    served = counts_with_forecasts(session, keys, begin, end, horizon=asked.horizon).as_served()
    ranked = sorted(_rows(links, served, Span(begin, end), floor), key=asked.place)
    page = _page(ranked, asked)
    return NetworkAccuracy(
        **_together(links, served, ranked, floor),
        mare_min_count=floor,
        from_=None if span is None else instant_of(begin),
        to=None if span is None else instant_of(end),
        horizon=asked.horizon,
        links_total=len(links),
        links=page,
        next_cursor=asked.cursor_at(page[-1]) if page and page[-1] is not ranked[-1] else None,
    )


def _rows(links: Sequence[LinkInfo], served: Pairs, span: Span, floor: int) -> list[RankedLink]:
    nothing = np.empty(0, dtype=np.int64)
    of_link = dict(groups(served.link_key))
    rows = []
    for link in links:
        pairs = served.where(of_link.get(link.link_key, nothing))
        slots = len(span.slots(link.slot_seconds))
        found = figures(pairs, link.slot_minutes, floor, slots=slots, counts=len(pairs.count))
        rows.append(RankedLink(**found, link_id=link.link_id))
    return rows


def _together(links: Sequence[LinkInfo], served: Pairs, rows: Sequence[RankedLink], floor: int) -> dict[str, Any]:
    """Give the figures over the slots of all links."""
    order = np.argsort(keys := np.array([link.link_key for link in links], dtype=np.int64))
    minutes = np.array([link.slot_minutes for link in links], dtype=np.int64)[order]
    of_row = minutes[np.searchsorted(keys[order], served.link_key)]
    slots = sum(row.n_used + row.n_missing + row.slots_without_forecast for row in rows)
    return figures(served, of_row, floor, slots=slots, counts=len(served.count))


def _page(ranked: Sequence[RankedLink], asked: Ranking) -> list[RankedLink]:
    after = asked.after()
    left = ranked if after is None else [row for row in ranked if asked.place(row) > after]
    return list(left[: asked.limit])
