"""Get the demo ready in a folder of its own: database, sample city, first counts, trained models, a key."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from errno import ENOSPC
from os import strerror
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

import numpy as np
from joblib.externals.loky import get_reusable_executor
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.database import reading, writing
from app.counts.ingest import store_counts
from app.counts.queries import newest_slots
from app.counts.series import LinkSeries
from app.demo.city import City
from app.demo.folder import DemoFolder, DemoSize
from app.keys.cache import hashed, key_id_in
from app.keys.issue import issue_key, write_secret
from app.keys.queries import key_with_id
from app.keys.tables import ALL_SCOPES
from app.links.queries import LinkInfo, all_links
from app.links.schemas import LinkIn
from app.links.store import store_links
from app.links.tables import folder_name
from app.registry.activate import activate
from app.registry.queries import active_models
from app.registry.register import register_model
from app.training.aligned_counts import LinkTopology

if TYPE_CHECKING:
    from app.training.network_stage import Report

NO_SPACE = strerror(ENOSPC)
HELD_OUT = 0.25  # of the stored days, and a week at most

Note = Callable[[int, int], None]


def store_city(engine: Engine, size: DemoSize, city: City) -> None:
    """Store the links, and the counts of all days but those that are replayed; what is there already stays."""
    with writing(engine) as session:
        store_links(session, [_link(city, i) for i in range(len(city.links))])
        links = _links_of(session, city)
        n = size.stored_slots(city)
        series = [city.counts[link.link_id][:n] for link in links]
        known = [np.flatnonzero(~np.isnan(counts)) for counts in series]
        counts = np.concatenate([one[rows] for one, rows in zip(series, known, strict=True)]).astype(np.int64)
        slots = (city.first_slot + np.concatenate(known)) * 60 * city.grid.slot_minutes
        keys = np.repeat([link.link_key for link in links], [len(rows) for rows in known])
        store_counts(session, links, np.column_stack([keys, slots, counts, np.zeros_like(counts)]))


def train_city(
    engine: Engine, folder: DemoFolder, size: DemoSize, city: City, note: Note, report: Report | None = None
) -> list[str]:
    """Train and activate the best model for every link that has none; give the links that could not be trained."""
    with reading(engine) as session:
        links = _links_of(session, city)
        active = active_models(session, [link.link_key for link in links])
    waiting = {link.link_id: link for link in links if link.link_key not in active}
    if not waiting:
        return []
    # Loaded only where there is something to train: a demo that goes on from where it was should not wait for it.
    from app.training.network_stage import BEST, NetworkTraining
    from app.training.train_links import train_links

    how = NetworkTraining.of(BEST, {"held_out_days": max(1, min(7, int(HELD_OUT * size.stored_days)))})
    output, store = folder.root / "training", folder.model_store
    series = [_series(city, link, size.stored_slots(city)) for link in waiting.values()]
    beside = [_series(city, link, size.stored_slots(city)) for link in links if link.link_id not in waiting]
    topology = {link.link_id: LinkTopology(link.geometry, tuple(link.upstream)) for link in city.links}
    failed = []
    note(0, len(waiting))
    with catch_warnings():
        # joblib's advice to whoever leaves early, as a full disk makes one do.
        filterwarnings("ignore", message=".*tasks which were still being processed")
        try:
            trained = train_links(series, output, how, topology=topology, beside=beside, resume=True, report=report)
            for done, outcome in enumerate(trained, 1):
                if outcome.state == "failed":
                    if NO_SPACE in outcome.reason:  # it will not go better with the next
                        raise OSError(ENOSPC, NO_SPACE, str(output))
                    failed.append(f"{outcome.link_id}: {outcome.reason}")
                else:
                    link = waiting[outcome.link_id]
                    with writing(engine) as session:
                        registered = register_model(session, store, link, output / folder_name(link.link_id))
                        activate(session, store, link, registered.version)
                note(done, len(waiting))
        finally:
            get_reusable_executor().shutdown(wait=True, kill_workers=True)  # they would wait for more work for minutes
    shutil.rmtree(output, ignore_errors=True)
    return failed


def demo_key(engine: Engine, folder: DemoFolder) -> str:
    """Return the demo's key: the one of an earlier run, or a new one."""
    file = folder.root / "demo.key"
    with suppress(OSError):
        key = file.read_text().strip()
        with reading(engine) as session:
            row = key_with_id(session, key_id_in(key) or "")
        if row is not None and row.hash == hashed(key) and row.revoked_at is None:
            return key
    with writing(engine) as session:
        key = issue_key(session, name="demo", scopes=ALL_SCOPES).key
        write_secret(file, key)
    return key


def next_slot(engine: Engine, city: City) -> int:
    """Return the number of the slot that the replay goes on with."""
    with reading(engine) as session:
        newest = newest_slots(session, [link.link_key for link in _links_of(session, city)])
    return max(newest.values()) // (60 * city.grid.slot_minutes) + 1


def _links_of(session: Session, city: City) -> list[LinkInfo]:
    """Return the city's links in the order of the database, which may hold others as well."""
    return [link for link in all_links(session) if link.link_id in city.counts]


def _link(city: City, i: int) -> LinkIn:
    link, minutes = city.links[i], city.grid.slot_minutes
    return LinkIn.model_validate(
        {
            "link_id": link.link_id,
            "name": link.name,
            "zone": link.zone,
            "geometry": link.geometry,
            "upstream": list(link.upstream),
            "capacity": link.capacity * 60 / minutes,  # the city counts by slot, the service by hour
            "slot_minutes": minutes,
        }
    )


def _series(city: City, link: LinkInfo, n: int) -> LinkSeries:
    counts = city.counts[link.link_id][:n]
    return LinkSeries(link.link_id, city.grid, link.zone, city.first_slot, counts, np.zeros(n, dtype=np.bool_))
