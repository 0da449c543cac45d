"""Links and counts of all layouts, the rules that they must follow, and a report that accounts for each value read."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from app.core.errors import RULES
from app.counts.tables import Quality
from app.links.schemas import LINK_ID_PATTERN

KEPT_REFUSALS = 100
LARGEST_COUNT = 2**31 - 1
# A mistyped year would stretch a link's series over centuries of gaps.
YEARS = range(1970, 2100)  # in UTC
SECONDS = range(0, int(datetime(YEARS.stop, 1, 1, tzinfo=UTC).timestamp()))  # in which a slot may start

LINK_ID = re.compile(LINK_ID_PATTERN)
LINK_ID_RULE = RULES[LINK_ID_PATTERN]
COUNT_RULE = f"must be a whole number from 0 to {LARGEST_COUNT}, in digits"
QUALITY_RULE = f"must be one of {', '.join(Quality)}"
SLOT_RULE = "must be an RFC 3339 time, such as 2006-10-02T10:15:00+10:00"
OFFSET_RULE = "must have an offset, such as Z or +10:00"
YEAR_RULE = f"must lie in the years {YEARS[0]} to {YEARS[-1]}, in UTC"


class CountFileError(ValueError):
    """A file that cannot be read as counts at all."""


class Refused(ValueError):
    """A field that breaks its rule."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(rule)
        self.name, self.value, self.rule = name, value, rule


class ImportedLink(NamedTuple):
    """A link as its file describes it."""

    link_id: str
    name: str
    zone: ZoneInfo | None  # None where neither the caller nor the layout names one
    latitude: float | None = None
    longitude: float | None = None


@dataclass(frozen=True, slots=True)
class ImportedCount:
    """A row of a file: vehicles on one link in the minutes from ``minute`` on, counted from 1970 in UTC.

    How many minutes a row covers is the same for a whole file. A row without a count is a declared gap.
    """

    link_id: str
    minute: int
    count: int | None
    quality: Quality = Quality.OBSERVED


class Refusal(NamedTuple):
    """One entry that was refused, and the rule it broke; a whole row stands for several values."""

    source: str
    line: int
    field: str
    value: str
    reason: str
    values: int = 1

    def __str__(self) -> str:
        place = f"{self.source}, line {self.line}" if self.line else self.source
        return f"{place}: {self.field}={self.value!r} is refused; it {self.reason}"


@dataclass
class ImportReport:
    """The account of an import. Once its rows are summed into slots, values = counts + gaps + refused.

    The first 100 refusals are kept in detail; ``reasons`` counts the refused values by rule, and
    ``suspects`` the counts marked suspect, which may be so for several reasons at once. ``notes`` are
    sentences on how the file was read, and ``spans`` has the first slot, the last slot (both by their starts
    in Unix seconds) and the number of counts of each link.
    """

    layout: str
    rows: int = 0
    values: int = 0
    counts: int = 0
    gaps: int = 0
    refused: int = 0
    suspect: int = 0
    imputed: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    suspects: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    spans: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def refuse(self, refusal: Refusal) -> None:
        """Count values as refused."""
        self.refused += refusal.values
        self.reasons[refusal.reason] += refusal.values
        if len(self.refusals) < KEPT_REFUSALS:
            self.refusals.append(refusal)


def whole_count(text: str) -> int:
    """Read a count such as 12 or 12.0; raise ``ValueError`` with the rule that it breaks."""
    whole, _, decimals = text.partition(".")
    # Ten digits hold the largest count; int() would be slow for very many.
    if whole.isascii() and whole.isdigit() and len(whole) <= 10 and not decimals.strip("0"):
        count = int(whole)
        if count <= LARGEST_COUNT:
            return count
    raise ValueError(COUNT_RULE)
