"""Get the links of a run ready to be trained, one when it is its turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from app.core.database import database_now, reading, writing
from app.counts.queries import newest_slots
from app.counts.series import LinkSeries
from app.links.queries import LinkInfo
from app.registry.queries import active_models
from app.registry.store import StoreAway
from app.training.heartbeat import Heartbeat
from app.training.link_training import ActiveModel
from app.training.network_stages import SECONDS_A_DAY, stored_from
from app.training.queries import renew_lease, set_link
from app.training.work import Work


class Prepared(NamedTuple):
    """What a link is trained from."""

    series: LinkSeries
    capacity: float | None  # vehicles a slot
    active: ActiveModel | None
    phase: Path | None
    refused: str = ""  # why it is not to be trained


def prepared_links(
    work: Work, heartbeat: Heartbeat, links: Iterable[LinkInfo], phases: Mapping[str, Path]
) -> Iterator[Prepared]:
    """Mark links as training and read their counts, for as long as the run should go on."""
    for link in links:
        if heartbeat.over or not mark_training(work, link):
            return
        yield _prepared(work, link, phases.get(link.link_id))


def mark_training(work: Work, link: LinkInfo) -> bool:
    """Mark a link as training; False when the run is another worker's, who may have settled it long since."""
    with writing(work.engine, derived=True, served=False) as session:
        now = database_now(session)
        if not renew_lease(session, work.run.id, work.worker, now):
            return False
        set_link(session, work.run.id, link.link_key, state="training", started_at=now)
        return True


def _prepared(work: Work, link: LinkInfo, phase: Path | None) -> Prepared:
    with reading(work.engine) as session:
        newest = newest_slots(session, [link.link_key]).get(link.link_key)
        first = None if newest is None else newest - work.days * SECONDS_A_DAY + link.slot_seconds
        series = stored_from(session, link, first)
        place = active_models(session, [link.link_key]).get(link.link_key)
    capacity = None if link.capacity is None else link.capacity * link.slot_minutes / 60
    try:
        active = None if place is None else ActiveModel(work.artifact(place), place.fingerprint)
    except StoreAway as away:  # what is active could not be compared with
        return Prepared(series, capacity, None, phase, str(away))
    return Prepared(series, capacity, active, phase)
