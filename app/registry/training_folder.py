"""Where a retrain run trains: a folder on this machine, beside the artifacts or their copies, gone when it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.registry.folder_store import is_old
from app.registry.store import ModelStore

PREFIX = ".training-"


@contextmanager
def training_folder(store: ModelStore, run_id: int) -> Iterator[Path]:
    """Return an empty folder for an attempt at a run; what earlier attempts left here is removed."""
    store.root.mkdir(parents=True, exist_ok=True)
    for leftover in store.root.glob(f"{PREFIX}{run_id}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{run_id}-", dir=store.root))
    held = os.open(folder, os.O_RDONLY)
    try:
        _lock(held)  # hours may pass before the next file is written: whoever sweeps must know that somebody is at it
        yield folder
    finally:
        os.close(held)
        shutil.rmtree(folder, ignore_errors=True)


def sweep_training(store: ModelStore, seconds: float) -> list[str]:
    """Remove what workers that died were training, so long after it was last written to."""
    stale = [
        folder
        for folder in store.root.glob(f"{PREFIX}*")
        if folder.is_dir() and is_old(folder, seconds) and _is_left(folder)
    ]
    for folder in stale:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder.name for folder in stale]


def _is_left(folder: Path) -> bool:
    try:
        held = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return _lock(held)
    finally:
        os.close(held)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: age alone decides
        return True
    return True
