"""Which links' forecasts have become worse than their models promised."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from app.accuracy.figures import figures, groups
from app.accuracy.queries import counts_with_forecasts
from app.counts.queries import newest_slot_end
from app.links.queries import LinkInfo, all_links
from app.retrain.trigger_queries import promises_of_active, resting_links
from app.settings import Settings
from app.spans import Span

HORIZON = 1
LEAST_SCORED = 0.5  # share of the window's slots


class Fallen(NamedTuple):
    """A link whose realised RMSE exceeds what its active model had on held-out days."""

    link: LinkInfo
    realised: float
    held_out: float


def falling_links(session: Session, settings: Settings, cool_since: datetime) -> list[Fallen]:
    """Find links to retrain, by what their active model said one slot ahead; those in a run, or just out of one, rest.

    The window ends with the newest count of any link: a detector that stopped sending has too few
    scored slots in it, and is no reason to learn anything new.
    """
    end = newest_slot_end(session)
    promises = promises_of_active(session)
    resting = resting_links(session, cool_since)
    links = {
        link.link_key: link for link in all_links(session) if link.link_key in promises and link.link_key not in resting
    }
    if end is None or not links:
        return []
    span = Span(max(0, end - 3600 * settings.retrain_trigger_window_hours), end)
    served = counts_with_forecasts(session, list(links), *span, horizon=HORIZON).as_served()
    found = []
    for key, which in groups(served.link_key):
        link, promise = links[key], promises[key]
        rows = served.where(which)
        rows = rows.where(np.flatnonzero(rows.version == promise.version))
        slots = len(span.slots(link.slot_seconds))
        said = figures(rows, link.slot_minutes, settings.mare_min_count, slots=slots, counts=len(rows.count))
        if said["n_used"] >= LEAST_SCORED * slots and said["rmse"] > settings.retrain_trigger * promise.rmse:
            found.append(Fallen(link, said["rmse"], promise.rmse))
    return found
