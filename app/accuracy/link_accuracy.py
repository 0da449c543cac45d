"""Measure the accuracy of one link: forecasts as they were served against the counts that came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlalchemy.orm import Session

from app.accuracy.breakdown import cut_pieces
from app.accuracy.error_sums import ErrorSums, measures, skill, total
from app.accuracy.queries import PART, Wanted, link_sums
from app.accuracy.schemas import By, LinkAccuracy, SeriesItem
from app.accuracy.window import parts, window_seconds
from app.core.times import Span, instant_of, read_span
from app.counts.queries import newest_slots
from app.links.queries import LinkInfo, link_or_404


@dataclass(frozen=True)
class Question:
    """What is asked of a link's accuracy."""

    window: str = "24h"
    horizon: int = 1
    model_version: int | None = None
    by: By | None = None
    begin: datetime | None = None
    end: datetime | None = None


def link_accuracy(session: Session, link_id: str, asked: Question, floor: int) -> LinkAccuracy:
    """Measure one link over a window that ends with its newest count, or over a given span."""
    link = link_or_404(session, link_id)
    newest = newest_slots(session, [link.link_key]).get(link.link_key)
    newest_end = None if newest is None else newest + link.slot_seconds
    span = read_span(asked.begin, asked.end, newest_end, window_seconds(asked.window))
    whole, series = _compare(session, link, span or Span(0, 0), asked, floor)
    return LinkAccuracy(
        **whole,
        mare_min_count=floor,
        link_id=link.link_id,
        from_=None if span is None else instant_of(span.begin),
        to=None if span is None else instant_of(span.end),
        horizon=asked.horizon,
        model_version=asked.model_version,
        series=series,
    )


def _compare(
    session: Session, link: LinkInfo, span: Span, asked: Question, floor: int
) -> tuple[dict[str, Any], list[SeriesItem] | None]:
    """Return the measures of a span, and those of its hours, days, horizons or versions if asked for."""

    def measured(sums: ErrorSums, within: Span = span) -> dict[str, Any]:
        last_week = skill(sums.squared_beside_last_week, sums.last_week_squared)
        return measures(sums, len(within.slots(link.slot_seconds))) | {"skill_last_week": last_week}

    cut = parts(link, span, asked.by) if asked.by in (By.HOUR, By.DAY) else []
    pieces = cut_pieces(link, span, [within for _, within in cut])
    wanted = Wanted(span, asked.horizon, asked.model_version)
    by_part = link_sums(session, link, pieces, wanted, floor, by=(PART,) if cut else ())
    whole = total(by_part.values())
    if asked.by is None:
        return measured(whole), None
    nothing: dict[str, Any] = {"from_": None, "horizon": None, "model_version": None}
    if asked.by in (By.HOUR, By.DAY):
        return measured(whole), [
            SeriesItem(**measured(by_part.get((i,), ErrorSums()), within), **nothing | {"from_": instant_of(begin)})
            for i, (begin, within) in enumerate(cut)
        ]
    # Of a horizon the forecasts as they were served; of a version all of its own.
    one = {"horizon": None} if asked.by is By.HORIZON else {"as_served": False}
    found = link_sums(session, link, pieces, replace(wanted, **one), floor, by=(asked.by.value,))
    return measured(whole), [
        SeriesItem(**measured(sums._replace(n_counts=whole.n_counts)), **nothing | {asked.by.value: key})
        for (key,), sums in sorted(found.items(), key=itemgetter(0))
    ]
