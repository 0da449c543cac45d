"""Objects in a bucket, by fsspec: each call is answered, or fails with one line that states why."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from app.registry.store import StoreAway

CONNECT_SECONDS = 2.0
READ_SECONDS = 20.0
ATTEMPTS = 2  # of a request, in all
AWAY_SECONDS = 10.0  # after a failure nobody waits for another one: hundreds of links may ask
OF_THIS_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)

Answer = TypeVar("Answer")


class Stored(NamedTuple):
    """An object: its bytes, and when it was written by the store's clock."""

    size: int
    written: datetime


class Bucket:
    """The objects below ``s3://BUCKET/PREFIX``.

    Credentials, region and address of the server come from where AWS's own tools have them: the variables
    ``AWS_…``, files in ``~/.aws``, or the machine's role.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._below = address.removeprefix("s3://")
        self._lock = threading.Lock()
        self._opened: Any = None
        self._away: tuple[str, float] = ("", 0.0)

    def list(self, prefix: str = "") -> dict[str, Stored]:
        """Return the objects below a prefix, by name below the address; none is fine."""
        found = self._ask(lambda files: files.find(self._path(prefix), detail=True))
        cut = len(self._below) + 1
        return {path[cut:]: Stored(one["size"], one["LastModified"]) for path, one in found.items()}

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return what objects hold, by name; those that are not there are left out."""
        wanted = list(names)
        paths = [self._path(name) for name in wanted]

        def ask(files: Any) -> dict[str, bytes]:
            answers = files.cat_ranges(paths, None, None, on_error="return") if paths else []
            for answer in answers:
                if isinstance(answer, BaseException) and not _is_absent(answer):
                    raise answer
            return {
                name: answer for name, answer in zip(wanted, answers, strict=True) if not isinstance(answer, Exception)
            }

        return self._ask(ask)

    def get(self, names: Iterable[str], folder: Path) -> None:
        """Copy objects into a folder, under the last part of their names; one that is absent is left out."""
        wanted = list(names)
        there = [str(folder / name.rpartition("/")[2]) for name in wanted]
        try:
            self._ask(lambda files: files.get([self._path(name) for name in wanted], there) if wanted else None)
        except FileNotFoundError:  # whoever reads the folder says which
            return

    def put(self, files_by_name: Mapping[str, Path]) -> None:
        """Write objects from files; each is there whole or not at all."""
        sources = [str(file) for file in files_by_name.values()]
        targets = [self._path(name) for name in files_by_name]
        self._ask(lambda files: files.put(sources, targets) if sources else None)

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that are not there are fine."""
        paths = [self._path(name) for name in names]
        if paths:
            self._ask(lambda files: files.rm(paths))

    def _path(self, name: str) -> str:
        return f"{self._below}/{name}".rstrip("/")

    def _ask(self, question: Callable[[Any], Answer]) -> Answer:
        reason, until = self._away
        if monotonic() < until:
            raise StoreAway(reason)
        try:
            return question(self._files())
        except Exception as problem:  # botocore's and aiohttp's errors have no root of their own
            if _is_absent(problem) or _is_of_this_machine(problem):
                raise
            raise self._noted(problem) from problem

    def _noted(self, problem: Exception) -> StoreAway:
        """Return why the store is unreachable, and refuse further attempts for a while."""
        # Botocore's own words may repeat addresses; S3's, which come as OSErrors, say what the operator must mend.
        message = (
            str(problem).splitlines()[0] if isinstance(problem, OSError) and str(problem) else type(problem).__name__
        )
        reason = f"the model store {self.address} is out of reach: {message}"
        self._away = (reason, monotonic() + AWAY_SECONDS)
        return StoreAway(reason)

    def _files(self) -> Any:
        with self._lock:
            if self._opened is None:
                self._opened = _open()
            return self._opened


def _open() -> Any:
    import fsspec  # here, for a store in a folder needs none of it

    region = os.environ.get("AWS_REGION")  # as AWS's other tools read it; botocore knows AWS_DEFAULT_REGION alone
    files = fsspec.filesystem(
        "s3",
        client_kwargs={"region_name": region} if region else {},
        config_kwargs={
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"total_max_attempts": ATTEMPTS, "mode": "standard"},
        },
        use_listings_cache=False,  # others write, too
        skip_instance_cache=True,
    )
    files.retries = 1  # beyond botocore's own
    return files


def _is_absent(problem: BaseException) -> bool:
    """Return whether an object is missing, and not its bucket."""
    answer = getattr(problem.__cause__, "response", None) or {}
    code = answer.get("Error", {}).get("Code")
    return isinstance(problem, FileNotFoundError) and code != "NoSuchBucket"


def _is_of_this_machine(problem: BaseException) -> bool:
    """Return whether the local disk failed, and not the store."""
    return isinstance(problem, OSError) and (problem.errno in OF_THIS_MACHINE or problem.filename is not None)
