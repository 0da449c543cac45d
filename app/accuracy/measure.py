"""Measure the accuracy of one link: forecasts as they were served against the counts that came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from app.accuracy.figures import figures, groups
from app.accuracy.queries import NONE, Pairs, counts_with_forecasts
from app.accuracy.schemas import By, LinkAccuracy, SeriesItem
from app.accuracy.window import parts, window_seconds
from app.counts.queries import newest_slots
from app.counts.series import as_count_series
from app.counts.stored_series import stored_series
from app.give_way import give_way
from app.links.queries import LinkInfo, link_or_404
from app.spans import SECONDS_A_DAY, Span, read_span
from app.web.instants import instant_of
from model.error_measures import skill

WEEK_BEFORE = 8 * SECONDS_A_DAY  # a local week may have an hour more than seven days


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
    view = _View(session, link, span or Span(0, 0), asked, floor)
    return LinkAccuracy(
        **view.whole(),
        mare_min_count=floor,
        link_id=link.link_id,
        from_=None if span is None else instant_of(span.begin),
        to=None if span is None else instant_of(span.end),
        horizon=asked.horizon,
        model_version=asked.model_version,
        series=view.series(),
    )


class _View:
    """The counts of one link in a span, with their forecasts."""

    def __init__(self, session: Session, link: LinkInfo, span: Span, asked: Question, floor: int) -> None:
        self._link, self._span, self._asked, self._floor = link, span, asked, floor
        horizon = None if asked.by is By.HORIZON else asked.horizon
        found = counts_with_forecasts(
            session, [link.link_key], span.begin, span.end, horizon=horizon, model_version=asked.model_version
        )
        give_way()
        self._all = replace(found, last_week=_last_week(session, link, found))
        give_way()
        # A count without a forecast has a row as well; it counts as seen, whatever the horizon.
        self._served = self._all.where(np.isin(self._all.horizon, (asked.horizon, NONE))).as_served()
        self._seen = np.unique(self._all.slot_start)

    def whole(self) -> dict[str, Any]:
        """Give the figures of the whole span."""
        return self._figures(self._served, self._span)

    def series(self) -> list[SeriesItem] | None:
        """Give the figures part by part, if that was asked for."""
        if self._asked.by is None:
            return None
        if self._asked.by in (By.HOUR, By.DAY):
            return self._by_time(self._asked.by)
        if self._asked.by is By.HORIZON:
            return [
                SeriesItem(**self._figures(rows, self._span), from_=None, horizon=horizon, model_version=None)
                for horizon, rows in _split(self._all.as_served(), "horizon")
            ]
        return [
            SeriesItem(**self._figures(rows, self._span), from_=None, horizon=None, model_version=version)
            for version, rows in _split(self._all, "version")
        ]

    def _by_time(self, by: By) -> list[SeriesItem]:
        cut = parts(self._link, self._span, by)
        slots = self._served.slot_start
        edges = np.searchsorted(slots, [(span.begin, span.end) for _, span in cut]).reshape(-1, 2)
        return [
            SeriesItem(
                **self._figures(self._served.where(slice(*edges[i])), span),
                from_=instant_of(begin),
                horizon=None,
                model_version=None,
            )
            for i, (begin, span) in enumerate(cut)
        ]

    def _figures(self, rows: Pairs, span: Span) -> dict[str, Any]:
        link = self._link
        counts = int(np.diff(np.searchsorted(self._seen, (span.begin, span.end)))[0])
        slots = len(span.slots(link.slot_seconds))
        found = figures(rows, link.slot_minutes, self._floor, slots=slots, counts=counts)
        return found | {"skill_last_week": skill(rows.count, rows.expected, rows.last_week).value}


def _split(rows: Pairs, name: str) -> list[tuple[int, Pairs]]:
    return [(key, rows.where(which)) for key, which in groups(getattr(rows, name)) if key != NONE]


def _last_week(session: Session, link: LinkInfo, rows: Pairs) -> Any:
    """Give the count of the same local slot a week before each row's, NaN where there is none."""
    if not len(rows.slot_start):
        return rows.last_week
    first, last = int(rows.slot_start.min()), int(rows.slot_start.max())
    series = stored_series(session, link, max(0, first - WEEK_BEFORE), last)
    return as_count_series(series).last_week()[rows.slot_start // link.slot_seconds - series.first]
