"""Follow what other processes write, link by link, so that no request has to look it up.

They say which links' counts they stored, and a moment later which links' forecasts. With the second the
forecasts are read, those of many links at once. Where it does not come within a second or two, because the
process that stored the counts is gone, the link is looked up when it is next asked for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from app.core.pg_notify import Kind, Notice

log = logging.getLogger("flowcast.forecasts")

MOST_BEHIND = 2.0  # seconds that the forecast of a link may be behind its newest count
GATHERING = 0.1  # seconds in which notices are gathered: a batch of counts seldom comes alone
CLOSE_SECONDS = 5.0

Read = Callable[[Mapping[int, int]], None]  # of links by key, from which slot on


class Following:
    """Reads, in a thread of its own, the forecasts that others issued."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._due: dict[int, float] = {}  # links that are behind, and from when on they must be looked up
        self._issued: dict[int, int] = {}  # links whose forecasts are to be read, and the slot they were issued from
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def hear(self, notice: Notice) -> None:
        """Take note of what another process wrote."""
        until = monotonic() + MOST_BEHIND
        with self._changed:
            for key in notice.link_keys:
                self._due.setdefault(key, until)
            if notice.kind is Kind.FORECASTS and not self._closed:
                self._issued.update(dict.fromkeys(notice.link_keys, notice.as_of))
                if self._thread is None:  # not before it is needed: most processes are alone
                    self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
                    self._thread.start()
                self._changed.notify()

    def is_behind(self, link_key: int) -> bool:
        """Tell whether a link must be looked up, for its forecast is behind by too much."""
        due = self._due.get(link_key) if self._due else None
        return due is not None and monotonic() > due

    def caught_up(self, link_keys: Sequence[int], since: float) -> None:
        """Take note that links were looked up from ``since`` on."""
        if self._due:
            with self._changed:
                for key in link_keys:
                    if self._due.get(key, since + MOST_BEHIND) < since + MOST_BEHIND:  # else it is heard of again
                        self._due.pop(key, None)

    def close(self) -> None:
        """Stop following."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=CLOSE_SECONDS)

    def _follow(self) -> None:
        while True:
            with self._changed:
                while not (self._issued or self._closed):
                    self._changed.wait()
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, GATHERING)
                if self._closed:
                    return
                issued, self._issued = self._issued, {}
            try:
                self._read(issued)
            except Exception as problem:  # they are looked up when they are asked for
                log.warning("forecasts of others were not read", extra={"reason": type(problem).__name__})
