"""Objects in a bucket, accessed through fsspec; a failure of the store is one line that states why."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from app.registry.store import StoreUnreachable

CONNECT_SECONDS = 2.0
READ_SECONDS = 20.0
ATTEMPTS = 2  # of a request, in all
UNREACHABLE_SECONDS = 10.0  # after a failure, in which calls fail at once: hundreds of links may need the store
OF_THIS_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)

Result = TypeVar("Result")


class StoredObject(NamedTuple):
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
        self._prefix = address.removeprefix("s3://")
        self._lock = threading.Lock()
        self._opened: Any = None
        self._unreachable: tuple[str, float] = ("", 0.0)  # why, and until when no call is attempted

    def list(self, prefix: str = "") -> dict[str, StoredObject]:
        """Return the objects below a prefix, by name below the address; there may be none."""
        found = self._call(lambda files: files.find(self._path(prefix), detail=True))
        cut = len(self._prefix) + 1
        return {path[cut:]: StoredObject(one["size"], one["LastModified"]) for path, one in found.items()}

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of objects, by name; absent ones are left out."""
        wanted = list(names)
        paths = [self._path(name) for name in wanted]

        def read(files: Any) -> dict[str, bytes]:
            results = files.cat_ranges(paths, None, None, on_error="return") if paths else []
            for result in results:
                if isinstance(result, BaseException) and not _is_absent(result):
                    raise result
            return {
                name: result for name, result in zip(wanted, results, strict=True) if not isinstance(result, Exception)
            }

        return self._call(read)

    def get(self, names: Iterable[str], folder: Path) -> None:
        """Copy objects into a folder, under the last part of their names; an absent one is left out."""
        wanted = list(names)
        targets = [str(folder / name.rpartition("/")[2]) for name in wanted]
        try:
            self._call(lambda files: files.get([self._path(name) for name in wanted], targets) if wanted else None)
        except FileNotFoundError:  # reading the folder shows which one
            return

    def put(self, files_by_name: Mapping[str, Path]) -> None:
        """Write objects from files; each is there whole or not at all."""
        sources = [str(file) for file in files_by_name.values()]
        targets = [self._path(name) for name in files_by_name]
        self._call(lambda files: files.put(sources, targets) if sources else None)

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; absent ones do not matter."""
        paths = [self._path(name) for name in names]
        if paths:
            self._call(lambda files: files.rm(paths))

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}".rstrip("/")

    def _call(self, operation: Callable[[Any], Result]) -> Result:
        """Call an operation of fsspec; after a failure of the store raise ``StoreUnreachable`` at once for a while."""
        reason, until = self._unreachable
        if monotonic() < until:
            raise StoreUnreachable(reason)
        try:
            return operation(self._files())
        except Exception as problem:  # botocore's and aiohttp's errors have no root of their own
            if _is_absent(problem) or _is_of_this_machine(problem):
                raise
            # Botocore's messages may repeat addresses; S3's, which come as OSErrors, state what the operator can fix.
            lines = str(problem).splitlines()[:1] if isinstance(problem, OSError) else []
            reason = f"the model store {self.address} is out of reach: {lines[0] if lines else type(problem).__name__}"
            self._unreachable = (reason, monotonic() + UNREACHABLE_SECONDS)
            raise StoreUnreachable(reason) from problem

    def _files(self) -> Any:
        with self._lock:
            if self._opened is None:
                self._opened = _open()
            return self._opened


def _open() -> Any:
    import fsspec  # here, because a store in a folder does not need it

    region = os.environ.get("AWS_REGION")  # as AWS's other tools read it; botocore reads AWS_DEFAULT_REGION alone
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
    response = getattr(problem.__cause__, "response", None) or {}
    code = response.get("Error", {}).get("Code")
    return isinstance(problem, FileNotFoundError) and code != "NoSuchBucket"


def _is_of_this_machine(problem: BaseException) -> bool:
    """Return whether the local disk failed, and not the store."""
    return isinstance(problem, OSError) and (problem.errno in OF_THIS_MACHINE or problem.filename is not None)
