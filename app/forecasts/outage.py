"""Forecasts while the database is away: what was said last, marked stale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from app.core.database import AWAY
from app.forecasts.board import ForecastBoard
from app.forecasts.entry import Entry, Rendered
from app.forecasts.silent_feed import fallback_in_memory

STALE_HEADER = {"X-Flowcast-Stale": "true"}


class Latest(NamedTuple):
    """The latest entries of links, and whether newer ones may exist that cannot be read."""

    entries: Mapping[str, Entry]
    stale: bool

    @property
    def headers(self) -> dict[str, str]:
        """What an answer from these says of itself before its body does."""
        return dict(STALE_HEADER) if self.stale else {}


def latest(board: ForecastBoard, link_ids: Iterable[str] | None = None) -> Latest:
    """Give the entries of links, or of all, from the database if it can be asked and from memory otherwise."""
    wanted = None if link_ids is None else list(link_ids)
    try:
        return Latest(board.look_up(wanted), stale=False)
    except AWAY:
        if (remembered := board.remembered(wanted)) is None:
            raise
        return Latest(remembered, stale=True)


def said_now(board: ForecastBoard, entry: Entry, stale: bool, now: int | None = None) -> tuple[Rendered | None, int]:
    """Give what an entry says now, and the age of its newest count; without the database, as far as memory goes."""
    rendered, age = board.rendered(entry, now)
    if rendered is None and stale and entry.stated is not None:
        # A copy: a profile from memory may lack its interval, which the database provides when it is back.
        return board.rendered(replace(entry, fallback=fallback_in_memory(board.issuer, entry.stated.said)), now)
    return rendered, age
