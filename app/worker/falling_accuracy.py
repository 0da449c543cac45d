"""Which links' forecasts have become worse than their models promised."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy.orm import Session

from app.accuracy.error_sums import ErrorSums, measures
from app.accuracy.queries import MODEL_VERSION, PART, Wanted, network_sums
from app.core.spans import Span
from app.counts.queries import newest_slot_end
from app.links.queries import LinkInfo, all_links
from app.settings import Settings
from app.worker.trigger_queries import promises_of_active, resting_links

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
    found = network_sums(session, Wanted(span, HORIZON), settings.mare_min_count, by=(PART, MODEL_VERSION))
    fallen = []
    for key, link in sorted(links.items()):
        promise, slots = promises[key], len(span.slots(link.slot_seconds))
        errors = measures(found.get((key, promise.version), ErrorSums()), slots)
        rmse: float | None = errors["rmse"]
        enough = errors["n_used"] >= LEAST_SCORED * slots
        if enough and rmse is not None and rmse > settings.retrain_trigger * promise.rmse:
            fallen.append(Fallen(link, rmse, promise.rmse))
    return fallen
