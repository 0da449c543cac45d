"""The artifact of a trained model: a folder of plain arrays and a JSON manifest, without pickle.

``docs/artifact.md`` documents the layout field by field.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from model.artifacts.folder import ARRAY_SUFFIX, MANIFEST, remove_leftovers, replace_folder, work_folders
from model.artifacts.manifest import (
    ARRAY_NAME,
    DTYPES,
    JSON,
    MAX_MANIFEST_BYTES,
    DamagedArtifact,
    NewerArtifact,
    check_entry,
    manifest_bytes,
    parse_manifest,
    plain_json,
    rfc3339,
)

__all__ = ["Artifact", "DamagedArtifact", "NewerArtifact", "read_artifact", "remove_leftovers", "write_artifact"]

AnyArray: TypeAlias = NDArray[Any]

NPY_1_0 = npy.magic(1, 0)
PAGE_BYTES = 4096
# A reader tries again if a writer is between its two renames, which are microseconds apart.
READ_ATTEMPTS = 20
READ_PAUSE_SECONDS = 0.005


@dataclass(frozen=True, eq=False)
class Artifact:
    """The content of an artifact's folder.

    Attributes
    ----------
    manifest : dict
        The content of ``manifest.json``.
    arrays : dict of str to array
        Memory-mapped and read-only. Processes that read the same artifact share its pages, and it may
        be replaced or deleted on disk while arrays are in use.
    fingerprint : str
        SHA-256 of the manifest's bytes, in hexadecimal.
    """

    manifest: dict[str, Any]
    arrays: dict[str, AnyArray]
    fingerprint: str

    def plain_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays as ndarrays, because slicing a numpy.memmap is slow.

        A small array is copied, because mapping it would take a whole page of memory.
        """
        return {
            name: np.array(array) if array.nbytes < PAGE_BYTES else np.asarray(array)
            for name, array in self.arrays.items()
        }

    @property
    def contents(self) -> dict[str, Any]:
        """The writer's description of the arrays."""
        return dict(self.manifest["contents"])


def write_artifact(
    folder: Path,
    contents: Mapping[str, JSON],
    arrays: Mapping[str, AnyArray],
    *,
    written_at: datetime | None = None,
) -> str:
    """Write an artifact atomically.

    Parameters
    ----------
    folder : Path
        The artifact's folder; its parent must exist. An existing artifact is replaced. Any other
        existing folder is an error.
    contents : mapping
        Strict JSON: finite numbers, string keys, lists (tuples become lists), mappings.
    arrays : mapping of str to array
        Names match ``[a-z][a-z0-9_]{0,63}``. Bool, integers, float32 and float64 of any shape, also
        0-d and empty; stored little-endian and in C order.
    written_at : datetime with a zone, optional
        Now by default. Everything else in an artifact depends only on the arguments and the versions
        of the libraries.

    Returns
    -------
    str
        The fingerprint: SHA-256 of the manifest, which holds the SHA-256 of each array.
    """
    if not isinstance(contents, Mapping):
        raise ValueError(f"contents is of type {type(contents).__name__}; it must be a mapping")
    plain_contents = plain_json(contents, "contents")
    plain_arrays = {name: _plain_array(name, array) for name, array in arrays.items()}
    written = rfc3339(datetime.now(UTC) if written_at is None else written_at)
    with replace_folder(Path(folder)) as new:
        entries = {name: _write_array(new, name, array) for name, array in plain_arrays.items()}
        return _write_file(new / MANIFEST, manifest_bytes(written, entries, plain_contents))


def read_artifact(folder: Path, *, fingerprint: str | None = None, verify: bool = True) -> Artifact:
    """Read an artifact without copying its arrays.

    Parameters
    ----------
    folder : Path
    fingerprint : str, optional
        The expected fingerprint, as returned by `write_artifact`.
    verify : bool, default=True
        Whether to check the SHA-256 of each array. Sizes, types and shapes are always checked.

    Raises
    ------
    DamagedArtifact
        Something is missing, or differs from what was written.
    NewerArtifact
        The artifact has a format that this version does not know.
    """
    folder = Path(folder)
    for attempt in range(READ_ATTEMPTS):
        before = _identity(folder)
        try:
            artifact = _read(folder, fingerprint, verify)
        except (DamagedArtifact, FileNotFoundError):  # FileNotFoundError: removed during the read
            if attempt + 1 == READ_ATTEMPTS or not _being_replaced(folder, before):
                raise
        else:
            if _identity(folder) == before:  # otherwise the files may be those of two artifacts
                return artifact
        time.sleep(READ_PAUSE_SECONDS)
    raise DamagedArtifact(folder, f"was replaced during each of {READ_ATTEMPTS} attempts to read it")


def _plain_array(name: str, array: AnyArray) -> AnyArray:
    """Return an array as it is stored; raise ValueError if its name or type cannot be stored."""
    if not isinstance(name, str) or not ARRAY_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is refused as the name of an array; it must match {ARRAY_NAME.pattern}")
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise ValueError(f"array {name} is a {type(array).__name__}; it must be a plain NumPy array")
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in DTYPES:
        raise ValueError(f"array {name} has dtype {array.dtype}; bool, integers, float32 and float64 can be stored")
    return np.asarray(array, dtype=dtype, order="C")


def _write_array(folder: Path, name: str, array: AnyArray) -> dict[str, Any]:
    header = io.BytesIO()
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(array))
    file = name + ARRAY_SUFFIX
    data = array.reshape(-1).view(np.uint8).data
    return {
        "file": file,
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "bytes": len(header.getvalue()) + array.nbytes,
        "sha256": _write_file(folder / file, header.getvalue(), data),
    }


def _write_file(path: Path, *parts: bytes | memoryview) -> str:
    # The data is hashed in memory and not read back, so that an error of the disk is found when it is read.
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _identity(folder: Path) -> tuple[int, int, int] | None:
    try:
        status = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns  # inode numbers are reused


def _being_replaced(folder: Path, before: tuple[int, int, int] | None) -> bool:
    now = _identity(folder)
    return now != before or (now is None and bool(work_folders(folder.absolute().parent, folder.name)))


def _read(folder: Path, fingerprint: str | None, verify: bool) -> Artifact:
    if not folder.is_dir():
        raise DamagedArtifact(folder, "there is no such folder")
    if (size := _regular_file(folder, MANIFEST)) > MAX_MANIFEST_BYTES:
        raise DamagedArtifact(folder, f"{MANIFEST} has {size} bytes; at most {MAX_MANIFEST_BYTES} are read")
    raw = (folder / MANIFEST).read_bytes()
    found = hashlib.sha256(raw).hexdigest()
    if fingerprint is not None and found != fingerprint:
        raise DamagedArtifact(folder, f"its fingerprint is {found}; {fingerprint} was expected")
    manifest = parse_manifest(folder, raw)
    arrays = {name: _read_array(folder, name, entry, verify) for name, entry in manifest["arrays"].items()}
    return Artifact(manifest, arrays, found)


def _regular_file(folder: Path, name: str) -> int:
    """Return the size of a file; raise DamagedArtifact if it is missing or not a regular file."""
    try:
        status = (folder / name).lstat()
    except FileNotFoundError:
        raise DamagedArtifact(folder, f"{name} is missing") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a file"
        raise DamagedArtifact(folder, f"{name} is {kind}; it must be a plain file")
    return status.st_size


def _read_array(folder: Path, name: str, entry: Any, verify: bool) -> AnyArray:
    check_entry(folder, name, entry)
    file = entry["file"]
    size = _regular_file(folder, file)
    if size != entry["bytes"]:
        raise DamagedArtifact(folder, f"{file} has {size} bytes; {entry['bytes']} were written")
    with (folder / file).open("rb") as opened:
        start = opened.read(npy.MAGIC_LEN)
        if not start.startswith(npy.MAGIC_PREFIX):
            raise DamagedArtifact(folder, f"{file} is not a NumPy array file")
        if start != NPY_1_0:
            raise DamagedArtifact(folder, f"{file} is not a NumPy array file of format 1.0")
        header = opened.read(int.from_bytes(opened.read(2), "little"))
        offset = opened.tell()
        opened.seek(0)
        if verify and hashlib.file_digest(opened, "sha256").hexdigest() != entry["sha256"]:
            raise DamagedArtifact(folder, f"{file} was changed: its SHA-256 is not the one it was written with")
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        # The header is compared instead of parsed, because NumPy parses headers with ``ast``, which may fail when two
        # threads use it at once (python/cpython#106905, CPython before 3.11.8), and an intact artifact would be
        # reported as damaged.
        if header.strip() != f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape}, }}".encode():
            described = f"dtype {dtype.str}, shape {list(shape)} and C order"
            raise DamagedArtifact(folder, f"{file} does not have the header of an array of {described}")
        if offset + math.prod(shape) * dtype.itemsize != size:
            raise DamagedArtifact(folder, f"{file} is not one array of shape {list(shape)} and nothing else")
        try:
            return np.memmap(opened, dtype, "r", offset, shape)
        except (OSError, OverflowError, ValueError) as error:  # a dimension beyond the largest of NumPy beside one of 0
            raise DamagedArtifact(folder, f"{file} is refused: {error}") from error
