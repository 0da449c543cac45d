"""Flowcast's own layouts, CSV, JSON lines and JSON: a link, a slot by its start, a count or a declared gap.

Columns may stand in any order, in upper or lower case and beside others, those of CSV between commas, semicolons or
tabs. The caller may name other columns, and the link of a file without such a column. A start is RFC 3339 with an
offset, or without one if the caller names the zone, or seconds or milliseconds since 1970. Eight, twelve or fourteen
digits may be a date and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache, partial
from zoneinfo import ZoneInfo

from app.core.slots import EPOCH, NonexistentTime
from app.core.times import parse_rfc_3339
from app.counts.importers.columns import COUNT, LINK, QUALITY, SLOT, ColumnError, Columns, header_of, locate
from app.counts.importers.json_rows import json_object, json_rows
from app.counts.importers.local_time import Occurrences, occurrences, skipped_rule
from app.counts.importers.reader import CountReader, Layout, header_and_delimiter
from app.counts.importers.record import (
    COUNT_RULE,
    LARGEST_COUNT,
    LINK_ID,
    LINK_ID_RULE,
    OFFSET_RULE,
    QUALITY_RULE,
    SECONDS,
    SLOT_RULE,
    YEAR_RULE,
    CountFileError,
    ImportedCount,
    ImportedLink,
    Refused,
    whole_count,
)
from app.counts.tables import Quality
from app.http.csv import from_cell

START_RULE = f"{SLOT_RULE}, or seconds since 1970"
ZONE_RULE = f"{OFFSET_RULE}, unless the option zone names the zone of local times"
STRING_RULE = "must be a string"
UNIX_TIME = re.compile(r"(\d{9,10}|\d{13})(?:\.0+)?", re.ASCII)
DOCUMENT = re.compile(r'\[\s*(?:$|[{\]])|\{\s*"counts"\s*:')
LIST = re.compile(r'^\s*\[|"counts"\s*:\s*\[')


def is_csv(first_line: str) -> bool:
    """Return whether a first line has the columns of the CSV layout."""
    try:
        return bool(locate(Columns(), tuple(header_of(first_line))))
    except ColumnError:
        return False


def is_json_lines(first_line: str) -> bool:
    """Return whether a line has the key of a link; it need not be sound, so that it can be refused by number."""
    return first_line.startswith("{") and f'"{LINK}"' in first_line.lower()


def is_json(first_line: str) -> bool:
    """Return whether a bracket or a key opens a list of counts."""
    return DOCUMENT.match(first_line) is not None


def read_csv(reader: CountReader, lines: Iterator[bytes]) -> Iterator[ImportedCount]:
    """Return the counts of a CSV file."""
    header, delimiter = header_and_delimiter(next(lines))
    try:
        columns = locate(reader.columns, tuple(header))
    except ColumnError as problem:
        raise CountFileError(f"{reader.source} {problem}") from None
    reader.leave_unread(name for name in header if name not in columns.values())
    link, quality = columns.get(LINK), columns.get(QUALITY)

    def count(fields: dict[str, str]) -> ImportedCount:
        link_id = from_cell(fields[link]) if link is not None else str(reader.columns.link_id)
        judged = fields[quality] if quality is not None else None
        return _count(reader, link_id, fields[columns[SLOT]], fields[columns[COUNT]], judged)

    return reader.counts(reader.rows(lines, header, delimiter), count)


def read_json_lines(reader: CountReader, lines: Iterator[bytes]) -> Iterator[ImportedCount]:
    """Return the counts of JSON lines."""
    return reader.counts(reader.texts(lines), partial(_json_count, reader))


def read_json(reader: CountReader, lines: Iterator[bytes]) -> Iterator[ImportedCount]:
    """Return the counts of a JSON document, which is a list of objects or has one."""
    missing = 'has no list of counts: it must be a JSON list or {"counts": [ … ]}'
    return reader.counts(json_rows(reader, lines, "counts", LIST, missing), partial(_json_count, reader))


LAYOUTS = (
    Layout("flowcast-csv", "link_id, slot_start, count and perhaps quality", is_csv, read_csv),
    Layout(
        "flowcast-jsonl",
        "an object a line with the keys link_id, slot_start, count and perhaps quality",
        is_json_lines,
        read_json_lines,
    ),
    Layout("flowcast-json", 'a list of such objects, or {"counts": [ … ]}', is_json, read_json, pieces=True),
)


class _OffGrid(ValueError):
    """A start that is not on a whole minute and so on no grid."""


def _json_count(reader: CountReader, text: str) -> ImportedCount:
    row = json_object(text)
    if row is None:
        raise Refused("line", text, "must be a JSON object")
    try:
        columns = locate(reader.columns, tuple(row))
    except ColumnError as problem:
        raise Refused(problem.name, "", f"must be certain: the object {problem}") from None
    reader.leave_unread(key for key in row if key not in columns.values())
    fields = {name: row[key] for name, key in columns.items()}
    link_id = fields[LINK] if reader.columns.link_id is None else reader.columns.link_id
    if not isinstance(link_id, str):
        raise Refused(LINK, link_id, STRING_RULE)
    if not isinstance(quality := fields.get(QUALITY), str | None):
        raise Refused(QUALITY, quality, STRING_RULE)
    if isinstance(count := fields[COUNT], str):
        raise Refused(COUNT, count, f"{COUNT_RULE}, not in quotes")
    return _count(reader, link_id, str(fields[SLOT]), count, quality)


def _count(reader: CountReader, link_id: str, slot_start: str, count: object, quality: str | None) -> ImportedCount:
    """Check the fields of a row and return its count."""
    known = link_id in reader.links
    if not known and not LINK_ID.fullmatch(link_id):
        raise Refused(LINK, link_id, LINK_ID_RULE)
    try:
        starts = _starts(slot_start, reader.zone)
    except _OffGrid:
        raise CountFileError(
            f"{reader.source}, line {reader.line}: slot_start={slot_start!r} is off the grid, so nothing of the "
            "file is used; slots start on whole minutes: correct the file or remove the row"
        ) from None
    vehicles = _vehicles(count)
    try:
        taken = Quality(quality.lower()) if quality else Quality.OBSERVED
    except ValueError:
        raise Refused(QUALITY, quality, QUALITY_RULE) from None
    if not known:
        reader.add_link(ImportedLink(link_id, link_id, reader.zone))
    if taken is Quality.SUSPECT and vehicles is not None:
        reader.report.suspects["the file says so"] += 1
    return ImportedCount(link_id, reader.repeated_hours.minute(link_id, starts), vehicles, taken)


def _vehicles(value: object) -> int | None:
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            return whole_count(value)
        whole = not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= LARGEST_COUNT
        if whole and value == int(value):  # type: ignore[call-overload]
            return int(value)  # type: ignore[call-overload, no-any-return]
    except ValueError:
        pass
    raise Refused(COUNT, value, COUNT_RULE)


@lru_cache(maxsize=10_000)  # a slot comes once per link, and is slow to read
def _starts(text: str, zone: ZoneInfo | None) -> Occurrences:
    if match := UNIX_TIME.fullmatch(text):
        return _at(int(match[1]) / (1000 if len(match[1]) == 13 else 1), text)
    start = parse_rfc_3339(text)
    if start is None:
        raise Refused(SLOT, text, START_RULE)
    if start.tzinfo is not None:
        return _at((start - EPOCH).total_seconds(), text)
    if zone is None:
        raise Refused(SLOT, text, ZONE_RULE)
    return _local_starts(start, text, zone)


def _at(seconds: float, text: str) -> Occurrences:
    if int(seconds // 1) not in SECONDS:  # a float would be searched for, number by number
        raise Refused(SLOT, text, YEAR_RULE)
    if seconds % 60:
        raise _OffGrid
    return Occurrences(int(seconds // 60))


def _local_starts(local: datetime, text: str, zone: ZoneInfo) -> Occurrences:
    try:
        starts = occurrences(local, zone)
    except NonexistentTime:
        raise Refused(SLOT, text, skipped_rule(zone)) from None
    except (ValueError, OverflowError):  # the second at the ends of the calendar
        raise _OffGrid from None
    if 60 * starts.first not in SECONDS:
        raise Refused(SLOT, text, YEAR_RULE)
    return starts
