"""Where a Dask scheduler listens, as an operator writes it."""

from __future__ import annotations

import importlib.util
import re
from enum import StrEnum

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
