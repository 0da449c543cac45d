"""An artifact's folder as one thing: replaced at once or not at all, whatever moment a writer dies at."""

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

# A writer works in .<target>.<process>-<random>.writing beside its target: the artifact to be is
# its "new", and what it replaces waits in its "old-<n>" until the new one is in place.
WORK_NAME = re.compile(r"\.(?P<target>.+)\.[0-9]+-[0-9a-f]{8}\.writing")
NEW = "new"


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """Return an empty folder that takes the target's place when the block ends without an error.

    Parameters
    ----------
    target : Path
        An artifact's folder, or nothing yet. Its parent must exist.

    Raises
    ------
    FileExistsError
        The target is there and is not an artifact's folder; it is left alone.
    """
    target = target.absolute()
    check_replaceable(target)
    with _work_folder(target) as work:
        try:
            (work / NEW).mkdir()
            yield work / NEW
            sync(work / NEW)
            _move_in(work, target)
            sync(target.parent)
        finally:
            _clear(work, target)


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove the temporary folders of writers that died, and return which.

    A writer at work holds a lock on its folder, which ends with its process: only folders without
    one are touched. A writer that died after it had moved the old artifact away, and before the
    new one was in, has its old artifact put back.

    Parameters
    ----------
    parent : Path
        The folder that holds the artifacts; it may be missing.

    Returns
    -------
    list of Path
        The folders removed, in order of name.
    """
    removed = []
    for work in writers_folders(parent.absolute()):
        with _held(work) as held:
            if held:
                _clear(work, _target_of(work))
                removed += [] if work.exists() else [work]
    return removed


def writers_folders(parent: Path, target: str | None = None) -> list[Path]:
    """List the temporary folders, of all targets or of one, whether their writers live or not."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = sorted(name for name in os.listdir(parent) if WORK_NAME.fullmatch(name))  # noqa: PTH208
    found = [parent / name for name in names]
    found = [work for work in found if work.is_dir() and not work.is_symlink()]
    return found if target is None else [work for work in found if _target_of(work).name == target]


def check_replaceable(target: Path) -> None:
    """Refuse to replace, and so to delete, what is not an artifact."""
    if target.name in ("", ".."):
        raise ValueError(f"{target} does not end in a name an artifact could have")
    with suppress(FileNotFoundError):  # nothing there, or another writer has just moved it away
        if not stat.S_ISDIR(target.lstat().st_mode):  # one look: between two it may be moved away
            raise FileExistsError(f"{target} is not a folder; it is not replaced by an artifact")
        for entry in sorted(target.iterdir()):
            known = entry.name == MANIFEST or entry.suffix == ARRAY_SUFFIX
            if not known or entry.is_dir():
                raise FileExistsError(f"{target} holds {entry.name}, which no artifact has; it is not replaced")


def sync(folder: Path) -> None:
    """Make a folder's list of names last through a power cut."""
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
        with _held(work) as held:
            if held:
                yield work
                return
        # Between mkdir and the lock remove_leftovers took it for a dead writer's: make another.


@contextmanager
def _held(work: Path) -> Iterator[bool]:
    """Lock a temporary folder, unless another process has it or has removed it."""
    try:
        descriptor = os.open(work, os.O_RDONLY)
    except FileNotFoundError:
        descriptor = None
    if descriptor is None:
        yield False
        return
    try:
        yield _locked(descriptor) and work.exists()
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _move_in(work: Path, target: Path) -> None:
    # A folder can be renamed onto nothing or onto an empty folder only. Between two renames the
    # target is missing; another writer may get in there, and then it is that one's turn to go.
    for turn in count():
        try:
            (work / NEW).rename(target)
            return
        except OSError as refused:
            if refused.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        check_replaceable(target)
        with suppress(FileNotFoundError):
            target.rename(work / f"old-{turn:06}")


def _clear(work: Path, target: Path) -> None:
    """Remove a temporary folder; if it holds the only copy of the target, put that back first."""
    old = sorted(work.glob("old-*"))
    if old and (work / NEW).exists() and not target.exists():
        try:
            old[-1].rename(target)
            sync(target.parent)
        except OSError:
            if not target.exists():  # otherwise another writer was faster
                raise
    # "new" goes first: as long as it is there an "old" beside it is whole.
    shutil.rmtree(work / NEW, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)


def _target_of(work: Path) -> Path:
    match = WORK_NAME.fullmatch(work.name)
    assert match
    return work.with_name(match["target"])
