"""Remove old versions, artifacts without a row, and folders that dead writers left behind."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from app.core.database import reading
from app.registry.queries import lock_versions, networks_in_use, newest_versions, remove_versions, versions_of
from app.registry.store import ModelStore, is_old
from app.registry.tables import ModelVersion

LEFT_AFTER_SECONDS = 3600.0  # without a write, after which a writer counts as dead
TRAINING = ".training-"

log = logging.getLogger("flowcast.housekeeping")


def remove_old_versions(session: Session, store: ModelStore, link_key: int, keep: int) -> list[int]:
    """Remove versions of a link that are neither active nor among its algorithm's latest retired or newest candidates.

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
    """Remove artifacts that have no row, and folders that dead writers left, an hour after they were last written to.

    An artifact is removed only where the database has its link's versions, none of them older than it. A service on
    the wrong database, or on yesterday's, removes nothing. Networks that no trained model refers to are removed, too.
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
        unused = _unused_networks(engine, store)
        for place in unused:
            store.remove(place)
        return gone + unused + sweep_training(store)
    except OSError as problem:  # a failing disk or an unreachable store must not stop the caller
        log.warning("the model store was not swept", exc_info=problem)
        return []


def _unused_networks(engine: Engine, store: ModelStore) -> list[str]:
    """Return the old networks that neither a row nor an artifact refers to.

    Artifacts count as well as rows, so that the wrong database removes nothing here, either.
    """
    networks = store.networks()
    if not networks:
        return []
    with reading(engine) as session:
        used = networks_in_use(session)
    unused = [place for place in networks if _fingerprint(place) not in used]
    unused = [place for place in unused if store.is_old(place, LEFT_AFTER_SECONDS)]
    used = store.networks_referred_to() if unused else used
    return [place for place in unused if _fingerprint(place) not in used]


def _fingerprint(network_place: str) -> str:
    return network_place.rpartition("/")[2]


def _kept(rows: Sequence[ModelVersion], keep: int) -> list[ModelVersion]:
    kept = [*rows[:1], *(row for row in rows if row.state == "active")]
    for algorithm in {row.algorithm for row in rows}:
        of_algorithm = [row for row in rows if row.algorithm == algorithm]
        retired = [row for row in of_algorithm if row.state == "retired"]
        retired.sort(key=lambda row: row.retired_at or row.created_at, reverse=True)
        kept += [*retired[:keep], *[row for row in of_algorithm if row.state == "candidate"][:keep]]
    return kept


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


@contextmanager
def training_folder(store: ModelStore, run_id: int) -> Iterator[Path]:
    """Return an empty folder on this machine for an attempt at a run, removed at the end.

    What earlier attempts left on this machine is removed first.
    """
    store.root.mkdir(parents=True, exist_ok=True)
    for leftover in store.root.glob(f"{TRAINING}{run_id}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{TRAINING}{run_id}-", dir=store.root))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor)  # hours may pass before the next file is written: the lock keeps a sweep from removing it
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def sweep_training(store: ModelStore) -> list[str]:
    """Remove the training folders of workers that died, an hour after they were last written to."""
    stale = [
        folder
        for folder in store.root.glob(f"{TRAINING}*")
        if folder.is_dir() and is_old(folder, LEFT_AFTER_SECONDS) and _is_unlocked(folder)
    ]
    for folder in stale:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder.name for folder in stale]


def _is_unlocked(folder: Path) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: age alone decides
        return True
    return True
