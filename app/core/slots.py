"""The grid of slots, in UTC, and conversions from and to a link's local time.

A slot is named by its start. Slots are numbered from 1970-01-01T00:00Z, so that a link's series is
a run of consecutive numbers: where clocks change, a local day has 92 or 100 slots of 15 minutes
instead of 96, and no slot is missing or comes twice.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
from numpy.typing import NDArray

MINUTES_A_DAY = 1440
MINUTE = timedelta(minutes=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Calendar(NamedTuple):
    """Local weekday (Monday is 0), slot of the day, and day counted from 1970-01-01, of consecutive slots."""

    weekday: NDArray[np.int64]
    slot_of_day: NDArray[np.int64]
    day: NDArray[np.int64]


class NonexistentTime(ValueError):
    """A local time that the clocks skipped."""


@dataclass(frozen=True)
class SlotGrid:
    """Slots of a length that divides a day."""

    slot_minutes: int = 15

    def __post_init__(self) -> None:
        whole = isinstance(self.slot_minutes, int) and not isinstance(self.slot_minutes, bool)
        if not whole or self.slot_minutes < 1 or MINUTES_A_DAY % self.slot_minutes:
            raise ValueError(
                f"slot_minutes={self.slot_minutes!r} is refused; it must be a whole number that divides a day's 1440"
            )

    @property
    def slots_per_day(self) -> int:
        """Return how many slots an ordinary day has."""
        return MINUTES_A_DAY // self.slot_minutes

    @property
    def length(self) -> timedelta:
        """Return the length of a slot."""
        return timedelta(minutes=self.slot_minutes)

    def number(self, slot_start: datetime) -> int:
        """Return the number of a slot by its start, which must have an offset and lie on the grid."""
        if slot_start.tzinfo is None:
            raise ValueError(f"slot_start={slot_start.isoformat()} is refused; it must have an offset")
        number, rest = divmod(slot_start - EPOCH, self.length)
        if rest:
            raise ValueError(
                f"slot_start={slot_start.isoformat()} is refused; it must lie on the grid of "
                f"{self.slot_minutes}-minute slots"
            )
        return number

    def containing(self, instant: datetime) -> int:
        """Return the number of the slot that an instant falls into."""
        return (instant - EPOCH) // self.length

    def start(self, number: int) -> datetime:
        """Return the start of a slot, in UTC."""
        return EPOCH + number * self.length

    def calendar(self, first: int, n: int, zone: ZoneInfo) -> Calendar:
        """Return local weekday, slot of the day and day of n slots from number ``first`` on."""
        minutes = (first + np.arange(n, dtype=np.int64)) * self.slot_minutes + self._offsets(first, n, zone)
        days, of_day = np.divmod(minutes, MINUTES_A_DAY)
        return Calendar((days + 3) % 7, of_day // self.slot_minutes, days)  # 1970-01-01 was a Thursday

    def local_day(self, day: date, zone: ZoneInfo) -> range:
        """Return the numbers of the slots that start on a local day: 92, 96 or 100 of them at 15 minutes."""
        ends = (day, day + timedelta(days=1))
        midnights = [from_local(datetime(d.year, d.month, d.day), zone, or_next=True) for d in ends]
        first, last = (-((EPOCH - midnight) // self.length) for midnight in midnights)
        return range(first, last)

    def _offsets(self, first: int, n: int, zone: ZoneInfo) -> NDArray[np.int64]:
        """Return the minutes that local time is ahead of UTC at each slot; looked up where they change."""
        offsets = np.empty(n, dtype=np.int64)
        step = max(1, 720 // self.slot_minutes)  # no zone changes its clocks twice in half a day
        begin = 0
        while begin < n:
            end = min(begin + step, n)
            left, right = self._offset(first + begin, zone), self._offset(first + end - 1, zone)
            if left == right:
                offsets[begin:end] = left
            else:
                offsets[begin:end] = [self._offset(first + i, zone) for i in range(begin, end)]
            begin = end
        return offsets

    def _offset(self, number: int, zone: ZoneInfo) -> int:
        ahead = self.start(number).astimezone(zone).utcoffset()
        assert ahead is not None
        return int(ahead.total_seconds() // 60)


def zone_named(name: str) -> ZoneInfo:
    """Return an IANA time zone; raise ``ValueError`` for any other name, such as the host's own ``localtime``."""
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    if zone is None or name not in _zone_names():
        raise ValueError(f"time zone {name!r} is refused; it must be an IANA name such as Europe/Berlin")
    return zone


@cache
def _zone_names() -> set[str]:
    # Both are files of the zone database, but not the zone of any place.
    return available_timezones() - {"localtime", "Factory"}


def from_local(local: datetime, zone: ZoneInfo, *, or_next: bool = False) -> datetime:
    """Return the UTC instant of a local time.

    A time that comes twice in autumn is its first occurrence, or the second with ``fold=1``. A time that
    spring skips is refused, or with ``or_next`` becomes the instant of the jump.
    """
    instant = local.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == local:
        return instant
    if not or_next:
        raise NonexistentTime(f"local time {local.isoformat()} does not exist in {zone.key}: the clocks skip it")
    # With fold=1 the offset after the jump applies, which puts the instant before it by the gap.
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    offset, gap = before.astimezone(zone).utcoffset(), (instant - before) // MINUTE
    jump = bisect_left(
        range(gap), True, key=lambda minute: (before + minute * MINUTE).astimezone(zone).utcoffset() != offset
    )
    return (before + jump * MINUTE).replace(second=0, microsecond=0)
