"""The local days of a link that an evaluation uses, and why a link may not have them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np

from app.counts.series import LinkSeries
from app.evaluation.plan import EvaluationPlan
from model.training import NotEnoughCounts

MOST_DAYS_NAMED = 3


class Days(NamedTuple):
    """A link's slots from its first training day to its last test day; the test days begin at ``cut``."""

    first_day: date
    link: LinkSeries
    cut: int


def cut_out(link: LinkSeries, plan: EvaluationPlan) -> Days:
    """Take the days a plan asks for, gaps where the link has no count; refuse a day without any."""
    first_day = plan.first_day or first_whole_day(link)
    try:
        days = [first_day + timedelta(days=n) for n in range(plan.train_days + plan.test_days)]
        slots = [link.grid.local_day(day, link.zone) for day in days]
    except OverflowError:
        raise NotEnoughCounts(f"the calendar ends within the days from {first_day} on") from None
    first, cut, end = slots[0].start, slots[plan.train_days].start, slots[-1].stop
    counts, suspect = np.full(end - first, np.nan), np.zeros(end - first, dtype=np.bool_)
    begin, stop = max(first, link.first), min(end, link.first + len(link))
    if begin < stop:
        here, there = slice(begin - first, stop - first), slice(begin - link.first, stop - link.first)
        counts[here], suspect[here] = link.counts[there], link.suspect[there]
    known = ~np.isnan(counts)
    empty = [day for day, its in zip(days, slots, strict=True) if not known[its.start - first : its.stop - first].any()]
    if empty:
        named = ", ".join(day.isoformat() for day in empty[:MOST_DAYS_NAMED])
        more = f" and {len(empty) - MOST_DAYS_NAMED} more days" if len(empty) > MOST_DAYS_NAMED else ""
        asked = f"{plan.train_days} + {plan.test_days} days from {first_day} on"
        raise NotEnoughCounts(f"no count on {named}{more}; {asked} need counts on every day")
    learnt = counts[: cut - first]
    if np.nanmin(learnt) == np.nanmax(learnt):
        raise NotEnoughCounts(f"every count of the training days is {np.nanmin(learnt):g}; there is nothing to learn")
    return Days(first_day, replace(link, first=first, counts=counts, suspect=suspect), cut - first)


def first_whole_day(link: LinkSeries) -> date:
    """Return the local day of a link's first midnight."""
    day = link.grid.start(link.first).astimezone(link.zone).date()
    return day if link.grid.local_day(day, link.zone).start >= link.first else day + timedelta(days=1)
