"""Measure the accuracy of one link or of all: forecasts as they were served against the realised counts."""

from __future__ import annotations

import struct
from datetime import datetime
from math import isnan
from operator import itemgetter
from typing import Any

from sqlalchemy.orm import Session

from app.accuracy.breakdown import LONGEST_DAYS, cut_parts, cut_pieces, window_seconds
from app.accuracy.error_sums import ErrorSums, measures, skill, total
from app.accuracy.queries import PART, ForecastFilter, link_sums, network_sums
from app.accuracy.schemas import By, LinkAccuracy, NetworkAccuracy, Order, RankedLink, SeriesItem, Sort
from app.core.errors import CURSOR_RULE, Invalid, worded
from app.core.times import SECONDS_A_DAY, Span, instant_of, read_span, rfc_3339
from app.counts.queries import newest_slot_end, newest_slots
from app.links.queries import all_links, link_or_404

CURSOR_PATTERN = worded(
    "^(?:[0-9a-f]{16}|none)~[A-Za-z0-9._:-]{1,64}$", CURSOR_RULE
)  # a figure's eight bytes, and the link
LONGEST_RULE = f"must lie at most {LONGEST_DAYS} days before the end of the span"


def link_accuracy(
    session: Session,
    link_id: str,
    floor: int,
    *,
    window: str = "24h",
    horizon: int = 1,
    model_version: int | None = None,
    by: By | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
) -> LinkAccuracy:
    """Measure one link over a window that ends with its newest count, or over a given span."""
    link = link_or_404(session, link_id)
    newest = newest_slots(session, [link.link_key]).get(link.link_key)
    newest_end = None if newest is None else newest + link.slot_seconds
    given = read_span(begin, end, newest_end, window_seconds(window))
    span = given or Span(0, 0)
    parts = cut_parts(link, span, by) if by in (By.HOUR, By.DAY) else []
    pieces = cut_pieces(link, span, [within for _, within in parts])
    wanted = ForecastFilter(span, horizon, model_version)
    by_part = link_sums(session, link, pieces, wanted, floor, by=(PART,) if parts else ())
    whole = total(by_part.values())

    def measured(sums: ErrorSums, within: Span = span) -> dict[str, Any]:
        last_week = skill(sums.squared_beside_last_week, sums.last_week_squared)
        return measures(sums, len(within.slots(link.slot_seconds))) | {"skill_last_week": last_week}

    series = None
    nothing: dict[str, Any] = {"from_": None, "horizon": None, "model_version": None}
    if by in (By.HOUR, By.DAY):
        series = [
            SeriesItem(**measured(by_part.get((i,), ErrorSums()), within), **nothing | {"from_": instant_of(start)})
            for i, (start, within) in enumerate(parts)
        ]
    elif by is not None:
        # Of a horizon the forecasts as they were served; of a version all of its own.
        each = (
            ForecastFilter(span, None, model_version)
            if by is By.HORIZON
            else ForecastFilter(span, horizon, model_version, as_served=False)
        )
        found = link_sums(session, link, pieces, each, floor, by=(by.value,))
        series = [
            SeriesItem(**measured(sums._replace(n_counts=whole.n_counts)), **nothing | {by.value: key})
            for (key,), sums in sorted(found.items(), key=itemgetter(0))
        ]
    return LinkAccuracy(
        **measured(whole),
        mare_min_count=floor,
        link_id=link.link_id,
        from_=None if given is None else instant_of(span.begin),
        to=None if given is None else instant_of(span.end),
        horizon=horizon,
        model_version=model_version,
        series=series,
    )


def network_accuracy(
    session: Session,
    floor: int,
    *,
    window: str = "24h",
    horizon: int = 1,
    sort: Sort = Sort.RMSE,
    order: Order = Order.DESC,
    limit: int = 100,
    cursor: str | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
) -> NetworkAccuracy:
    """Measure all links over a window that ends with the newest count of any, or over a given span, and rank them."""

    def place(value: float | None, link_id: str) -> tuple[bool, float, str]:
        """Return a link's place: first by figure, then by id, those without the figure last."""
        if value is None or isnan(value):
            return True, 0.0, link_id
        return False, value if order is Order.ASC else -value, link_id

    def place_of(row: RankedLink) -> tuple[bool, float, str]:
        return place(getattr(row, sort.value), row.link_id)

    links = all_links(session)
    given = read_span(begin, end, newest_slot_end(session), window_seconds(window))
    span = given or Span(0, 0)
    if span.end - span.begin > LONGEST_DAYS * SECONDS_A_DAY:
        raise Invalid.field("from", rfc_3339(instant_of(span.begin)), LONGEST_RULE)
    found = network_sums(session, ForecastFilter(span, horizon), floor)
    sums = [found.get((link.link_key,), ErrorSums()) for link in links]
    slots = [len(span.slots(link.slot_seconds)) for link in links]
    rows = [
        RankedLink(**measures(errors, n), link_id=link.link_id)
        for link, errors, n in zip(links, sums, slots, strict=True)
    ]
    ranked = sorted(rows, key=place_of)
    left = ranked if cursor is None else [row for row in ranked if place_of(row) > place(*_read_cursor(cursor))]
    page = left[:limit]
    return NetworkAccuracy(
        **measures(total(sums), sum(slots)),
        mare_min_count=floor,
        from_=None if given is None else instant_of(span.begin),
        to=None if given is None else instant_of(span.end),
        horizon=horizon,
        links_total=len(links),
        links=page,
        next_cursor=_cursor_at(page[-1], sort) if len(left) > limit else None,
    )


def _cursor_at(row: RankedLink, sort: Sort) -> str:
    value = getattr(row, sort.value)
    return f"{'none' if value is None else struct.pack('>d', value).hex()}~{row.link_id}"


def _read_cursor(cursor: str) -> tuple[float | None, str]:
    figure, link_id = cursor.split("~", 1)
    return None if figure == "none" else struct.unpack(">d", bytes.fromhex(figure))[0], link_id
