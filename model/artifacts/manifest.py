"""The manifest of an artifact: writing, parsing and checking it."""

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

MAX_MANIFEST_BYTES = 64 << 20  # the manifest of a network of 10,000 links has one million
MAX_DEPTH = 100  # levels of contents, which also bounds a list that contains itself
MAX_INTEGER_BITS = 1024  # Python refuses to parse much longer integers


# Exceptions that building a model raises for contents or arrays that do not fit together.
INVALID_PARTS = (TypeError, ValueError, IndexError, AttributeError, ArithmeticError)


class DamagedArtifact(ValueError):
    """Raised for an artifact that is damaged, with the reason."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(folder, reason)  # both arguments, so that it can be unpickled in another process
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.folder}: {self.reason}"


class NewerArtifact(DamagedArtifact):
    """Raised for an artifact in a format that only a newer version can read."""


def plain_json(value: object, path: str, depth: int = 0) -> Any:
    """Copy JSON into dicts and lists; raise ValueError with the path of a value that is not JSON."""
    if depth > MAX_DEPTH:
        raise ValueError(f"{path} is nested deeper than {MAX_DEPTH} levels, or holds itself")
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
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise ValueError(f"{path} is an integer of {value.bit_length()} bits; at most {MAX_INTEGER_BITS} are kept")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"{path} holds half a surrogate pair, which is not text")
    return value


def manifest_bytes(written_at: str, arrays: dict[str, dict[str, Any]], contents: Any) -> bytes:
    """Return the manifest as bytes, which depend only on the arguments and the versions of the libraries."""
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
    """Parse a manifest; raise DamagedArtifact if it is invalid."""
    try:
        manifest = json.loads(raw.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedArtifact(folder, f"{MANIFEST} is not JSON, or cut short: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DamagedArtifact(folder, f"{MANIFEST} is not a {FORMAT}'s")
    format_version = manifest.get("format_version")
    if type(format_version) is not int or format_version < 1:
        raise DamagedArtifact(folder, f"{MANIFEST} has format_version {format_version!r}; it must be a number from 1")
    if format_version > FORMAT_VERSION:
        message = f"written by a newer Flowcast (format {format_version}; this one reads up to {FORMAT_VERSION})"
        raise NewerArtifact(folder, message)
    for field, kind in {"written_at": str, "libraries": dict, "arrays": dict, "contents": dict}.items():
        if not isinstance(manifest.get(field), kind):
            raise DamagedArtifact(folder, f"{MANIFEST} has no {field}, or one of the wrong type")
    return manifest


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def check_entry(folder: Path, name: str, entry: Any) -> None:
    """Raise DamagedArtifact if write_artifact cannot have written the entry of an array in the manifest."""
    fields = entry if isinstance(entry, dict) else {}
    shape = fields.get("shape")
    valid = {
        "name": bool(ARRAY_NAME.fullmatch(name)),
        "file": bool(FILE_NAME.fullmatch(str(fields.get("file")))),
        "dtype": fields.get("dtype") in DTYPES,
        "shape": isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape),
        "bytes": type(fields.get("bytes")) is int,
        "sha256": bool(SHA256.fullmatch(str(fields.get("sha256")))),
    }
    for field, is_valid in valid.items():
        if not is_valid:
            value = name if field == "name" else fields.get(field)
            message = f"{MANIFEST}: array {name!r} has the {field} {value!r}, which is not allowed"
            raise DamagedArtifact(folder, message)


def rfc3339(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC, to the second."""
    if moment.tzinfo is None:
        raise ValueError(f"written_at={moment!r} is refused; it must have a time zone")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


@cache
def _libraries() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # in a checkout that is not installed
            versions[name] = "unknown"
    return versions
