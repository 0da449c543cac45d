"""The manifest of an artifact: what goes into it, and what is believed when it is read back."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from model.artifacts.folder import MANIFEST

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

FORMAT = "flowcast-artifact"
FORMAT_VERSION = 1
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
LIBRARIES = ("numpy", "scipy", "scikit-learn", "flowcast")

ARRAY_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}\.npy")
SHA256 = re.compile(r"[0-9a-f]{64}")

LARGEST_MANIFEST = 64 << 20  # bytes; that of a network of 10,000 links has one million
DEEPEST = 100  # levels of contents; a list that holds itself is refused here
LONGEST_INTEGER = 1024  # bits; Python refuses to read back much longer ones


# What parts raise that do not fit together, whatever they are.
MISFITS = (TypeError, ValueError, IndexError, AttributeError, ArithmeticError)


class DamagedArtifact(ValueError):
    """An artifact that cannot be trusted, and why."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(folder, reason)  # both, so that it survives the way back from another process
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.folder}: {self.reason}"


class NewerArtifact(DamagedArtifact):
    """An artifact in a format this version cannot read yet."""


def plain_json(value: object, path: str, depth: int = 0) -> Any:
    """Copy JSON into dicts and lists, or refuse what is not JSON by its path."""
    if depth > DEEPEST:
        raise ValueError(f"{path} is nested deeper than {DEEPEST} levels, or holds itself")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{path} has the key {key!r}; JSON keys are strings")
            plain_json(key, f"{path}: the key {key!r}")
        return {key: plain_json(inner, f"{path}.{key}", depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner, f"{path}[{i}]", depth + 1) for i, inner in enumerate(value)]
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError(f"{path} is of type {type(value).__name__}, which JSON does not have")
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{path} is {value!r}; JSON has finite numbers only")
    if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
        raise ValueError(f"{path} is an integer of {value.bit_length()} bits; at most {LONGEST_INTEGER} are kept")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"{path} holds half a surrogate pair, which is not text")
    return value


def manifest_bytes(written_at: str, arrays: dict[str, dict[str, Any]], contents: Any) -> bytes:
    """Write the manifest, the same bytes for the same arguments and libraries."""
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "written_at": written_at,
        "libraries": _libraries(),
        "arrays": arrays,
        "contents": contents,
    }
    text = json.dumps(manifest, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    return f"{text}\n".encode()


def parse_manifest(folder: Path, raw: bytes) -> dict[str, Any]:
    """Read a manifest, or refuse it with the reason."""
    try:
        manifest = json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedArtifact(folder, f"{MANIFEST} is not JSON, or cut short: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DamagedArtifact(folder, f"{MANIFEST} is not a {FORMAT}'s")
    written = manifest.get("format_version")
    if type(written) is not int or written < 1:
        raise DamagedArtifact(folder, f"{MANIFEST} has format_version {written!r}; it must be a number from 1")
    if written > FORMAT_VERSION:
        told = f"written by a newer Flowcast (format {written}; this one reads up to {FORMAT_VERSION})"
        raise NewerArtifact(folder, told)
    for field, kind in {"written_at": str, "libraries": dict, "arrays": dict, "contents": dict}.items():
        if not isinstance(manifest.get(field), kind):
            raise DamagedArtifact(folder, f"{MANIFEST} has no {field}, or one of the wrong type")
    return manifest


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def check_entry(folder: Path, name: str, entry: Any) -> None:
    """Refuse an array's line in the manifest that write_artifact cannot have written."""
    fields = entry if isinstance(entry, dict) else {}
    shape = fields.get("shape")
    sound = {
        "name": bool(ARRAY_NAME.fullmatch(name)),
        "file": bool(FILE_NAME.fullmatch(str(fields.get("file")))),
        "dtype": fields.get("dtype") in DTYPES,
        "shape": isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape),
        "bytes": type(fields.get("bytes")) is int,
        "sha256": bool(SHA256.fullmatch(str(fields.get("sha256")))),
    }
    for field, is_sound in sound.items():
        if not is_sound:
            value = name if field == "name" else fields.get(field)
            told = f"{MANIFEST}: array {name!r} has the {field} {value!r}, which is not allowed"
            raise DamagedArtifact(folder, told)


def rfc3339(moment: datetime) -> str:
    """Write a moment as a date and time in UTC, to the second."""
    if moment.tzinfo is None:
        raise ValueError(f"written_at={moment!r} is refused; it must have a time zone")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


@cache
def _libraries() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that was not installed
            versions[name] = "unknown"
    return versions
