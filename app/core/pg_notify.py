"""Notifications between processes over PostgreSQL: that something was written, and which links it concerns.

A notice is one word, or word, sender, newest slot and link keys: ``forecasts 5f0c2a 1757894400 17,18,19``.
PostgreSQL limits notices to 8,000 bytes, so many links need several.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

CHANNEL = "flowcast_changes"
MOST_KEYS = 700  # in one notice, of ten digits each
PROCESS = secrets.token_hex(6)

_RECORDED = "flowcast.changes"  # where a session keeps what it changes


class Change(StrEnum):
    """What was written."""

    SERVED = "served"  # something that any forecast may change by
    OTHER = "other"  # something that no forecast changes by
    COUNTS = "counts"  # counts that move links forward; their forecasts are about to be issued
    FORECASTS = "forecasts"  # forecasts of links
    NOTHING = "nothing"  # no process is notified


own_writes: Counter[Change] = Counter()  # of this process, by what they changed


class Notice(NamedTuple):
    """A notification that was received."""

    change: Change
    sender: str = ""
    as_of: int = 0  # the slot that forecasts were issued from, in Unix seconds
    link_keys: tuple[int, ...] = ()


def record_change(session: Session, change: Change, link_keys: Sequence[int] = (), as_of: int = 0) -> None:
    """Record that a session's writes change the forecasts of these links alone, if any; calls add up."""
    session.info.setdefault(_RECORDED, []).append((change, link_keys, as_of))


def publish_changes(session: Session, default: Change) -> list[Change]:
    """Notify other processes, at the commit, of the recorded changes, or else of the default; return them."""
    recorded: list[tuple[Change, Sequence[int], int]] = session.info.get(_RECORDED, [(default, (), 0)])
    bind = session.get_bind()
    if bind.dialect.name == "postgresql":
        for change, link_keys, as_of in recorded:
            for notice in format_notices(change, sender_name(bind.engine), link_keys, as_of):
                session.execute(select(func.pg_notify(CHANNEL, notice)))
    return [change for change, _, _ in recorded if change is not Change.NOTHING]


def sender_name(engine: Engine) -> str:
    """Return the name of an engine as a sender of notices; a change feed of the engine ignores its own."""
    return f"{PROCESS}{id(engine.dialect):x}"


def format_notices(change: Change, sender: str, link_keys: Sequence[int], as_of: int = 0) -> Iterator[str]:
    """Yield the notices of a change."""
    if change in (Change.SERVED, Change.OTHER):
        yield change.value
        return
    for begin in range(0, len(link_keys), MOST_KEYS):
        keys = ",".join(str(key) for key in link_keys[begin : begin + MOST_KEYS])
        yield f"{change.value} {sender} {as_of} {keys}"


def parse_notice(payload: str) -> Notice:
    """Parse a notice; one that cannot be parsed may concern any link."""
    try:
        change, *rest = payload.split(" ")
        if not rest:
            return Notice(Change(change))
        sender, as_of, keys = rest
        return Notice(Change(change), sender, int(as_of), tuple(int(key) for key in keys.split(",")))
    except ValueError:
        return Notice(Change.SERVED)
