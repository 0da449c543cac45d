"""Keep the registry small: versions nobody will go back to leave it, and what died writers left leaves the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from app.core.database import reading
from app.registry.queries import lock_versions, networks_in_use, newest_versions, remove_versions, versions_of
from app.registry.store import ModelStore
from app.registry.tables import ModelVersion
from app.registry.training_folder import sweep_training
from model.artifacts.network_models import NETWORKS

LEFT_AFTER_SECONDS = 3600.0  # whoever writes for longer than this has died

log = logging.getLogger("flowcast.housekeeping")


def remove_old_versions(session: Session, store: ModelStore, link_key: int, keep: int) -> list[int]:
    """Take versions of a link that are neither active nor among the latest retired or newest candidates.

    At least one retired version stays, the one a rollback leads to, and so does the newest version of
    all: its number must not be given again. Rows go with the transaction, artifacts once it is committed.
    """
    lock_versions(session, link_key)
    rows = versions_of(session, link_key)  # the newest version first
    kept = {row.version for row in _kept(rows, max(1, keep))}
    gone = [row for row in rows if row.version not in kept]
    if gone:
        remove_versions(session, [row.id for row in gone])
        _after_commit(session, store, [row.folder for row in gone])
    return sorted(row.version for row in gone)


def sweep_store(engine: Engine, store: ModelStore) -> list[str]:
    """Remove artifacts that have no row, and folders that died writers left, an hour after they were last written to.

    Only what the database knows to be gone is removed: of links it has versions of, and no version
    newer than those. A service that is pointed at the wrong database, or at yesterday's, loses nothing.
    Networks that no trained model refers to any more go, too.
    """
    try:
        places = store.places()  # before the rows are read: what is added meanwhile is not seen
        with reading(engine) as session:
            newest, known = newest_versions(session)
        orphans = [
            place
            for place in places
            if place not in known and int(place.rpartition("/")[2]) <= newest.get(place.rpartition("/")[0], 0)
        ]
        gone = [place for place in orphans if store.holds_artifact(place) and store.is_old(place, LEFT_AFTER_SECONDS)]
        for place in gone:
            store.remove(place)
        return gone + _sweep_networks(engine, store) + sweep_training(store, LEFT_AFTER_SECONDS)
    except OSError as problem:  # a disk in trouble, or a store that is unreachable, must not stop the one who sweeps
        log.warning("the model store was not swept", exc_info=problem)
        return []


def _sweep_networks(engine: Engine, store: ModelStore) -> list[str]:
    """Remove networks that neither a row nor an artifact refers to, an hour after they were last written to.

    Artifacts count as well as rows, so that here, too, the wrong database costs nothing.
    """
    there = store.networks()
    if not there:
        return []
    with reading(engine) as session:
        used = networks_in_use(session)
    # After the rows were read: whoever registers touches the network before the row is written.
    idle = [network for network in there if network not in used and store.network_is_old(network, LEFT_AFTER_SECONDS)]
    if idle:
        used = store.networks_referred_to()
        idle = [network for network in idle if network not in used]
    for network in idle:
        store.remove_network(network)
    return [f"{NETWORKS}/{network}" for network in idle]


def _kept(rows: Sequence[ModelVersion], keep: int) -> list[ModelVersion]:
    active = [row for row in rows if row.state == "active"]
    retired = [row for row in rows if row.state == "retired"]
    retired.sort(key=lambda row: row.retired_at or row.created_at, reverse=True)
    candidates = [row for row in rows if row.state == "candidate"]
    return [*rows[:1], *active, *retired[:keep], *candidates[:keep]]


def _after_commit(session: Session, store: ModelStore, places: Sequence[str]) -> None:
    """Remove artifacts when the transaction under way is committed; none if it is not."""
    waiting = list(places)

    def after_commit(_session: Session) -> None:
        while waiting:
            store.remove(waiting.pop())

    def after_rollback(_session: Session) -> None:
        waiting.clear()

    event.listen(session, "after_commit", after_commit)
    event.listen(session, "after_rollback", after_rollback)
