"""Atomic replacement of an artifact's folder, also if the writer's process ends in between."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

MANIFEST = "manifest.json"
ARRAY_SUFFIX = ".npy"

# A writer works in .<target>.<process>-<random>.writing beside its target. The new artifact is in "new" there,
# and the old one is moved to "old-<n>" there until the new one is in place.
WORK_NAME = re.compile(r"\.(?P<target>.+)\.[0-9]+-[0-9a-f]{8}\.writing")
NEW = "new"


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces the target when the block ends without an error.

    Parameters
    ----------
    target : Path
        An artifact's folder, which need not exist. Its parent must exist.

    Raises
    ------
    FileExistsError
        The target exists and is not an artifact's folder. It is not changed.
    """
    target = target.absolute()
    check_replaceable(target)
    with _work_folder(target) as work:
        try:
            (work / NEW).mkdir()
            yield work / NEW
            sync(work / NEW)
            _swap_in(work, target)
            sync(target.parent)
        finally:
            _remove_work_folder(work, target)


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove the temporary folders of writers whose process has ended, and return them.

    A writer holds a lock on its folder, which is released when its process ends; locked folders are
    skipped. If a writer ended between moving the old artifact out and the new one in, the old
    artifact is restored.

    Parameters
    ----------
    parent : Path
        The folder that holds the artifacts; it may be missing.

    Returns
    -------
    list of Path
        The removed folders, sorted by name.
    """
    removed = []
    for work in work_folders(parent.absolute()):
        with _try_lock(work) as locked:
            if locked:
                _remove_work_folder(work, _target_of(work))
                removed += [] if work.exists() else [work]
    return removed


def work_folders(parent: Path, target: str | None = None) -> list[Path]:
    """Return the temporary folders of all targets or of one, whether their writers are running or not."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = sorted(name for name in os.listdir(parent) if WORK_NAME.fullmatch(name))  # noqa: PTH208
    found = [parent / name for name in names]
    found = [work for work in found if work.is_dir() and not work.is_symlink()]
    return found if target is None else [work for work in found if _target_of(work).name == target]


def check_replaceable(target: Path) -> None:
    """Raise FileExistsError if a target exists and is not an artifact's folder."""
    if target.name in ("", ".."):
        raise ValueError(f"{target} does not end in a name an artifact could have")
    with suppress(FileNotFoundError):  # it does not exist, or another writer has just moved it
        if not stat.S_ISDIR(target.lstat().st_mode):  # one call, because it may be moved between two
            raise FileExistsError(f"{target} is not a folder; it is not replaced by an artifact")
        for entry in sorted(target.iterdir()):
            known = entry.name == MANIFEST or entry.suffix == ARRAY_SUFFIX
            if not known or entry.is_dir():
                raise FileExistsError(f"{target} holds {entry.name}, which no artifact has; it is not replaced")


def sync(folder: Path) -> None:
    """Flush a folder's list of names to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    for _ in count():
        work = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.writing")
        work.mkdir()
        with _try_lock(work) as locked:
            if locked:
                yield work
                return
        # remove_leftovers removed it between mkdir and the lock, so another one is made.


@contextmanager
def _try_lock(work: Path) -> Iterator[bool]:
    """Lock a temporary folder; yield False if another process has locked or removed it."""
    try:
        descriptor = os.open(work, os.O_RDONLY)
    except FileNotFoundError:
        descriptor = None
    if descriptor is None:
        yield False
        return
    try:
        yield _flock(descriptor) and work.exists()
    finally:
        os.close(descriptor)


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _swap_in(work: Path, target: Path) -> None:
    # A folder can only be renamed to a name that is free or that of an empty folder. Between the two renames
    # another writer may create the target, which is then moved out as well.
    for attempt in count():
        try:
            (work / NEW).rename(target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        check_replaceable(target)
        with suppress(FileNotFoundError):
            target.rename(work / f"old-{attempt:06}")


def _remove_work_folder(work: Path, target: Path) -> None:
    """Remove a temporary folder; if it holds the only copy of the target, restore that first."""
    old = sorted(work.glob("old-*"))
    if old and (work / NEW).exists() and not target.exists():
        try:
            old[-1].rename(target)
            sync(target.parent)
        except OSError:
            if not target.exists():  # otherwise another writer has created it
                raise
    # "new" is removed first, because as long as it exists an "old" beside it is complete.
    shutil.rmtree(work / NEW, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)


def _target_of(work: Path) -> Path:
    match = WORK_NAME.fullmatch(work.name)
    assert match
    return work.with_name(match["target"])
