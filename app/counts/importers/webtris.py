"""WebTRIS' daily report, as CSV or as its API gives it: a row per site and quarter of an hour, named by its end.

The link id is the site's name with ``-`` for each ``/`` and ``_`` for spaces; of two names with one id
the second is refused. A day has 96 rows, also where the clocks change. Rows in the hour that spring skips
are gaps when blank, and refused when not. A time that autumn repeats is its first occurrence; if it
comes again before the site's rows leave the repeated hour, it is the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, time
from functools import lru_cache
from zoneinfo import ZoneInfo

from app.core.slots import NonexistentTime
from app.counts.importers.json_rows import json_object, json_rows
from app.counts.importers.local_time import Occurrences, day_of, occurrences, skipped_rule
from app.counts.importers.reader import CountReader, Layout, has_columns
from app.counts.importers.record import LINK_ID, ImportedCount, ImportedLink, Refused, whole_count

SITE, DAY, END, COUNT = "Site Name", "Report Date", "Time Period Ending", "Total Volume"
COLUMNS = (SITE, DAY, END, COUNT)
ROW_MINUTES = 15
LAST_MINUTE = re.compile(r"([01]?\d|2[0-3]):(14|29|44|59)(?::00)?", re.ASCII)
END_RULE = "must be the last minute of a quarter of an hour, such as 00:14:00 or 23:59:00"
SITE_RULE = "must be 1 to 64 letters, digits, dots, underscores, colons, dashes, slashes or spaces"
ROW_RULE = "must be a whole JSON object without inner ones, or the bracket that ends the list"
DOCUMENT = re.compile(r'\{\s*"(?:Header|Rows)"\s*:')
LIST = re.compile(r'"Rows"\s*:\s*\[')


def is_json(first_line: str) -> bool:
    """Return whether the first key is that of a report."""
    return DOCUMENT.match(first_line) is not None


def read_csv(reader: CountReader, lines: Iterator[bytes]) -> Iterator[ImportedCount]:
    """Return the counts of a CSV file."""
    return reader.counts(reader.table(lines, COLUMNS), _Sites(reader).count)


def read_json(reader: CountReader, lines: Iterator[bytes]) -> Iterator[ImportedCount]:
    """Return the counts of a JSON document."""
    sites = _Sites(reader)
    rows = json_rows(reader, lines, "Rows", LIST, 'is no WebTRIS report: it has no list "Rows"')
    return reader.counts(rows, lambda text: sites.count(_fields(text)))


LAYOUTS = (
    Layout("webtris-daily", ", ".join(COLUMNS), has_columns(COLUMNS), read_csv, ROW_MINUTES),
    Layout(
        "webtris-daily-json",
        '{"Header": …, "Rows": [ … ]} with the same keys in each row',
        is_json,
        read_json,
        ROW_MINUTES,
        pieces=True,
    ),
)


class _Sites:
    """The sites of one file, and where each stands in an hour that autumn repeats."""

    def __init__(self, reader: CountReader) -> None:
        self._reader = reader
        self._zone = reader.zone_or("Europe/London")
        self._repeated: dict[str, set[int]] = {}

    def count(self, fields: Mapping[str, str]) -> ImportedCount | None:
        """Read a row; None for a gap in the hour that spring skips."""
        site, day, end, text = (fields[name] for name in COLUMNS)
        link_id = self._link_id(site)
        try:
            count = whole_count(text) if text else None
        except ValueError as rule:
            raise Refused(COUNT, text, str(rule)) from None
        starts = _starts(day, end, self._zone)
        if starts is None and count is not None:
            raise Refused(END, f"{day} {end}", skipped_rule(self._zone))
        if link_id not in self._reader.links:
            self._reader.add_link(ImportedLink(link_id, site, self._zone))
        minute = self._minute(link_id, starts)
        if minute is None:
            self._reader.report.gaps += 1
            return None
        return ImportedCount(link_id, minute, count)

    def _link_id(self, site: str) -> str:
        link_id = "_".join(site.replace("/", "-").split())
        if not LINK_ID.fullmatch(link_id):
            raise Refused(SITE, site, SITE_RULE)
        known = self._reader.links.get(link_id)
        if known and known.name != site:
            raise Refused(SITE, site, f"must not make the link id {link_id}, which is that of {known.name!r}")
        return link_id

    def _minute(self, link_id: str, starts: Occurrences | None) -> int | None:
        if starts is None or starts.second is None:
            self._repeated.pop(link_id, None)
            return starts and starts.first
        seen = self._repeated.setdefault(link_id, set())
        if starts.first in seen:
            return starts.second
        seen.add(starts.first)
        return starts.first


@lru_cache(maxsize=10_000)  # a slot comes once per site
def _starts(day: str, end: str, zone: ZoneInfo) -> Occurrences | None:
    """Return the minutes that a row can mean; None where the clocks skip it."""
    try:
        date = day_of(day)
    except ValueError as rule:
        raise Refused(DAY, day, str(rule)) from None
    match = LAST_MINUTE.fullmatch(end)
    if not match:
        raise Refused(END, end, END_RULE)
    try:
        return occurrences(datetime.combine(date, time(int(match[1]), int(match[2]) - 14)), zone, ROW_MINUTES)
    except NonexistentTime:
        return None
    except ValueError:
        raise Refused(END, end, f"must end a slot of the grid in {zone.key}") from None


def _fields(text: str) -> dict[str, str]:
    row = json_object(text)
    if row is None:
        raise Refused("row", text, ROW_RULE)
    fields = {}
    for key in COLUMNS:
        if key not in row:
            raise Refused(key, "", "must be given")
        value = row[key]
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise Refused(key, value, "must be a string, a whole number or null")
        fields[key] = "" if value is None else str(value).strip()
    return fields
