"""The model store that the settings name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from app.registry.bucket import Bucket
from app.registry.folder_store import FolderStore
from app.registry.object_store import ObjectStore
from app.registry.store import ModelStore
from app.settings import Settings


def open_store(settings: Settings) -> ModelStore:
    """Return the model store; a process has one of each, so that what it knows of a store is known to all its parts."""
    if isinstance(settings.model_store, Path):
        return FolderStore(settings.model_store)
    return _objects(settings.model_store, settings.model_cache, settings.model_cache_megabytes)


@lru_cache
def _objects(address: str, cache: Path, megabytes: int) -> ObjectStore:
    # A folder for every store: two that share a cache must not take each other's places.
    return ObjectStore(Bucket(address), cache / quote(address.removeprefix("s3://"), safe=""), megabytes)
