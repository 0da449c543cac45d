"""A link's answer on the board: what decides it, and its JSON ready to be sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache

from app.forecasts.bases import Basis
from app.forecasts.issue import Statement
from app.forecasts.silent_feed import Fallback

_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode  # made once: it costs as much as using it
FORECASTS = (b',"stale":false,"forecasts":[', b',"stale":true,"forecasts":[')


@dataclass
class Entry:
    """One link's answer; ``stated`` is None while the link has no count."""

    basis: Basis
    stamp: object
    stated: Rendered | None
    fallback: Fallback | None = None  # what answers instead once the newest count is too old
    late: Rendered | None = None  # its answer for the slot that contained now when it was last asked for
    behind_since: float | None = None  # when a newer count was seen whose forecast was still to come

    @property
    def newest_end(self) -> int:
        """End of the newest slot with a count, in Unix seconds."""
        return (self.basis.as_of or 0) + self.basis.link.slot_seconds


class Rendered:
    """A statement as JSON, cut where the age of the data goes, which changes from second to second."""

    def __init__(self, said: Statement) -> None:
        self.said = said
        self._name = b'{"link_id":' + json.dumps(said.link.link_id).encode()
        self._parts: tuple[tuple[bytes, bytes], ...] = ()  # of the horizons asked for so far, mostly the first alone

    @cached_property
    def status(self) -> bytes:
        """Return whether the link's active model speaks, or its profile where that was chosen."""
        return b"degraded" if self.said.degraded_reason else b"ok"

    @cached_property
    def mark(self) -> bytes:
        """Give what no other statement has, for the tags of answers."""
        said = self.said
        source = (said.as_of, said.model_version, said.degraded_reason, said.issued_at)
        return repr((said.link.link_id, said.link.link_key, *source)).encode()

    def forecasts(self, horizons: int, age: int) -> bytes:
        """Give the JSON of the first horizons, without the brackets."""
        parts = self._parts
        if len(parts) < horizons:  # put in place as a whole, for another thread may be at it too
            more = (_around_age(self.said, horizon) for horizon in range(len(parts) + 1, horizons + 1))
            parts = self._parts = (*parts, *more)
        middle = b"%d" % age
        return b",".join([before + middle + after for before, after in parts[:horizons]])

    def body(self, horizons: int, age: int, stale: bool = False) -> bytes:
        """Give the whole answer."""
        return self._name + FORECASTS[stale] + self.forecasts(horizons, age) + b"]}"

    def listed(self, horizons: int, age: int) -> bytes:
        """Give the answer as one of many."""
        return self._name + b',"status":"%s","forecasts":[' % self.status + self.forecasts(horizons, age) + b"]}"


def _around_age(said: Statement, horizon: int) -> tuple[bytes, bytes]:
    h = horizon - 1
    before = {
        "horizon": horizon,
        "slot_start": rfc3339(said.slot(horizon)),
        "expected_count": said.expected[h],
        "lower": said.lower[h],
        "upper": said.upper[h],
        "level": said.level,
        "flow": round(said.expected[h] * 3600 / said.link.slot_seconds, 3),
        "as_of_slot": rfc3339(said.as_of),
        "issued_at": rfc3339_micros(said.issued_at),
        "method": said.method,
        "degraded_reason": said.degraded_reason,
        "filled_lags": said.filled_lags,
    }
    head = _compact(before)[:-1] + ',"data_age_seconds":'
    return head.encode(), b',"model_version":%s}' % (b"%d" % said.model_version if said.model_version else b"null")


@lru_cache(maxsize=256)  # a slot is that of many links, and so is the moment at which a batch's forecasts are issued
def rfc3339(seconds: int) -> str:
    """Write Unix seconds as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=256)
def rfc3339_micros(microseconds: int) -> str:
    """Write microseconds since 1970 as a time in UTC."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
