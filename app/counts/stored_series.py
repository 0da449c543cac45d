"""A link's stored counts as the gap-marked series that health, training and profiles read."""

from __future__ import annotations

import numpy as np
from sqlalchemy.orm import Session

from app.counts.queries import Rows, as_rows, counts_by_link, stored_span
from app.counts.series import LinkSeries
from app.counts.tables import QUALITIES
from app.links.queries import LinkInfo

SUSPECT = QUALITIES.index("suspect")


def stored_series(session: Session, link: LinkInfo, first: int | None = None, last: int | None = None) -> LinkSeries:
    """Build the series of every slot that starts from ``first`` to ``last``, both included, in Unix seconds.

    A bound that is given is kept, with gaps up to it; one that is None is the link's oldest or
    newest count. A link without a count has an empty series where a bound is missing.
    """
    oldest, newest = (first, last) if first is not None and last is not None else stored_span(session, link.link_key)
    begin, end = oldest if first is None else first, newest if last is None else last
    if begin is None or end is None:
        return series_of(link, as_rows([]), range(0))
    rows = counts_by_link(session, [link.link_key], begin, end)[link.link_key]
    return series_of(link, rows, slots_between(link, begin, end))


def slots_between(link: LinkInfo, first: int, last: int) -> range:
    """Return the numbers of a link's slots that start from ``first`` to ``last``, both included, in Unix seconds."""
    return range(-(-first // link.slot_seconds), last // link.slot_seconds + 1)


def series_of(link: LinkInfo, rows: Rows, slots: range) -> LinkSeries:
    """Build the series of consecutive slots, by number, from rows of one link that lie in them."""
    counts, suspect = np.full(len(slots), np.nan), np.zeros(len(slots), dtype=np.bool_)
    place = rows[:, 1] // link.slot_seconds - slots.start
    counts[place], suspect[place] = rows[:, 2], rows[:, 3] == SUSPECT
    return LinkSeries(link.link_id, link.grid, link.zone, slots.start, counts, suspect)
