"""Notifications between processes over PostgreSQL: that something was written, and which links it concerns.

A notice is one word, or word, sender, newest slot and link keys: ``forecasts 5f0c2a 1757894400 17,18,19``.
PostgreSQL lets notices be 8,000 bytes long, so many links make several.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Engine

MOST_KEYS = 700  # in one notice, of ten digits each
PROCESS = secrets.token_hex(6)


class Kind(StrEnum):
    """What was written."""

    SERVED = "served"  # something that any forecast may change by
    OTHER = "other"  # something that none does
    COUNTS = "counts"  # counts that move links forward; their forecasts are about to be issued
    FORECASTS = "forecasts"  # forecasts of links
    NOTHING = "nothing"  # after all, so nobody is notified


class Notice(NamedTuple):
    """A notification that was received."""

    kind: Kind
    sender: str = ""
    as_of: int = 0  # the slot that forecasts were issued from, in Unix seconds
    link_keys: tuple[int, ...] = ()


def sender(engine: Engine) -> str:
    """Return the name under which whoever writes through an engine is known; its own notifications are ignored."""
    return f"{PROCESS}{id(engine.dialect):x}"


def written(kind: Kind, sender: str, link_keys: Sequence[int], as_of: int = 0) -> Iterator[str]:
    """Write notices down."""
    if kind in (Kind.SERVED, Kind.OTHER):
        yield kind.value
        return
    for begin in range(0, len(link_keys), MOST_KEYS):
        keys = ",".join(str(key) for key in link_keys[begin : begin + MOST_KEYS])
        yield f"{kind.value} {sender} {as_of} {keys}"


def read(payload: str) -> Notice:
    """Read a notice; one that is not understood may mean anything."""
    try:
        kind, *rest = payload.split(" ")
        if not rest:
            return Notice(Kind(kind))
        sender, as_of, keys = rest
        return Notice(Kind(kind), sender, int(as_of), tuple(int(key) for key in keys.split(",")))
    except ValueError:
        return Notice(Kind.SERVED)
