"""Addresses in settings: the model store, a folder or a bucket, and the Dask scheduler."""

from __future__ import annotations

import importlib.util
import re
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
PREFIX = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*)?")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def store_address(given: Path | str) -> Path | str:
    """Return the folder, or ``s3://BUCKET/PREFIX``, or refuse it by a rule."""
    if isinstance(given, Path):
        return given
    if given.startswith("s3:"):
        return _objects(given.removeprefix("s3:").removeprefix("//").rstrip("/"))
    if given.startswith("file:"):
        given = given.removeprefix("file:")
        if given.startswith("//"):
            given = given[2:]
            if not given.startswith("/"):
                raise ValueError("it must be written as file:PATH or file:///PATH, without a host")
    elif SCHEME.match(given):
        raise ValueError("it must be a folder, file:PATH or s3://BUCKET/PREFIX")
    if not given:
        raise ValueError("it must name a folder after file:")
    return Path(given)


def _objects(below: str) -> str:
    bucket, _, prefix = below.partition("/")
    if not BUCKET.fullmatch(bucket) or not PREFIX.fullmatch(prefix):
        raise ValueError("it must be written as s3://BUCKET/PREFIX; credentials go into AWS_… variables")
    if find_spec("s3fs") is None:
        raise ValueError("an object store needs packages that are not installed: pip install 'flowcast[s3]'")
    return f"s3://{below}"


StoreAddress = Annotated[Path | str, BeforeValidator(store_address)]  # a path is a folder, a string a bucket


ADDRESS = re.compile(
    r"(?:tcp|tls)://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})"
)


class DaskAway(StrEnum):
    """What a retrain run does while the Dask scheduler is away."""

    LOCAL = "local"
    WAIT = "wait"


def check_dask_address(address: str) -> str:
    """Refuse what is no scheduler's address, or could not be reached for want of Dask; an empty one means none."""
    if not (address := address.strip()):
        return address
    found = ADDRESS.fullmatch(address)
    if found is None or not 1 <= int(found["port"]) <= 65_535:
        raise ValueError(f"it must be written as tcp://HOST:PORT or tls://HOST:PORT; {address!r} is not")
    if importlib.util.find_spec("distributed") is None:
        raise ValueError("it needs Dask, which is not installed: pip install --requirement requirements/cluster.txt")
    return address


def host_and_port(address: str) -> tuple[str, int]:
    """Take an address apart."""
    found = ADDRESS.fullmatch(address)
    assert found is not None
    return found["host"].strip("[]"), int(found["port"])
