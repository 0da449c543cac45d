"""Replay the sample city over REST, slot by slot, as a traffic-control system would send it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np

from app.demo.city import City

TIMEOUT_SECONDS = 30.0
RETRY_SECONDS = 0.5
PATIENCE_SECONDS = 60.0
SERVER_ERROR = 500  # from this status on a request is sent again


class FeedClient:
    """A client of the service that posts counts."""

    def __init__(
        self,
        address: str,
        key: str,
        require_alive: Callable[[], None] = lambda: None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._address, self._key, self._require_alive, self._patience = address, key, require_alive, patience
        self._opener = build_opener(ProxyHandler({}))  # the service is on this machine, whatever proxy is set

    def request(self, path: str, body: bytes | None = None) -> Any:
        """Return the JSON of a GET, or of a POST of a body."""
        headers = {"X-API-Key": self._key, "Content-Type": "application/json"}
        request = Request(self._address + path, data=body, headers=headers)
        with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            return json.load(answer)

    def post_counts(self, counts: list[dict[str, Any]]) -> Any:
        """Post a batch of counts, again if the service is unreachable for a minute; repeated it changes nothing."""
        body = json.dumps({"counts": counts}).encode()
        give_up = time.monotonic() + self._patience
        while True:
            try:
                return self.request("/v1/counts", body)
            except HTTPError as refused:
                if refused.code < SERVER_ERROR:
                    raise
                problem = f"status {refused.code}"
            except OSError as unreachable:
                problem = str(getattr(unreachable, "reason", unreachable))
            self._require_alive()
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self._address} has accepted no counts for {self._patience:g} s: {problem}")
            time.sleep(RETRY_SECONDS)


def counts_of(city: City, slot: int) -> list[dict[str, Any]]:
    """Return a slot's counts as they are posted; a link whose detector is silent has none."""
    start = city.grid.start(slot).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = ((link_id, series[slot - city.first_slot]) for link_id, series in city.counts.items())
    return [
        {"link_id": link_id, "slot_start": start, "count": int(count)}
        for link_id, count in found
        if not np.isnan(count)
    ]


def replay(
    city: City,
    feed: FeedClient,
    first: int,
    *,
    per_minute: float,
    until: float | None = None,
    note: Callable[[int], None] = lambda slot: None,
    live: bool = False,
) -> bool:
    """Send slot after slot at a steady pace; return whether the city's counts are used up.

    ``until`` is a reading of the monotonic clock at which to stop; ``note`` is called with each slot sent; ``live``
    sends no slot before it is over.
    """
    due = time.monotonic()
    for slot in range(first, city.slots.stop):
        if live:
            due = max(due, time.monotonic() + city.grid.start(slot + 1).timestamp() - time.time())
        if until is not None and due >= until:
            time.sleep(max(0.0, until - time.monotonic()))
            return False
        time.sleep(max(0.0, due - time.monotonic()))
        if counts := counts_of(city, slot):
            feed.post_counts(counts)
        note(slot)
        due = max(due + 60 / per_minute, time.monotonic())  # what is late is not made up for in a burst
    return True
