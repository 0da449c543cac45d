"""PeMS station files of California: a row per station and five minutes, named by its start, without a header.

A blank flow is a declared gap. A row is imputed when it was observed by less than 100 %, or gives no percentage.
Times are local, by the rules of ``local_time``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from app.core.slots import MINUTES_A_DAY, NonexistentTime
from app.counts.importers.columns import fields_of, header_of
from app.counts.importers.local_time import Occurrences, occurrences, skipped_rule
from app.counts.importers.reader import CountReader, Layout
from app.counts.importers.record import (
    LARGEST_COUNT,
    LINK_ID,
    LINK_ID_RULE,
    YEAR_RULE,
    YEARS,
    ImportedCount,
    ImportedLink,
    Refused,
    whole_count,
)
from app.counts.tables import Quality

ROW_MINUTES = 5
# So small that the sum over even a day's slot is a count.
LARGEST_FLOW = LARGEST_COUNT // (MINUTES_A_DAY // ROW_MINUTES)
TIME = re.compile(r"\d\d?/\d\d?/\d{4} \d\d?:\d\d:\d\d", re.ASCII)
PERCENTAGE = re.compile(r"\d{1,3}(\.\d*)?", re.ASCII)

FIELDS, LANE_FIELDS = 12, 5
FIELD_RULE = f"must have {FIELDS} fields, and {LANE_FIELDS} more for each lane"
TIME_RULE = "must be a time as MM/DD/YYYY HH:MM:SS"
START_RULE = f"must start a row of {ROW_MINUTES} minutes: minutes divisible by {ROW_MINUTES}, and no seconds"
FLOW_RULE = f"must be a whole number from 0 to {LARGEST_FLOW}"
OBSERVED_RULE = "must be a percentage from 0 to 100"


def recognises(first_line: str) -> bool:
    """Return whether the first row has a time and enough fields."""
    fields = header_of(first_line, ",")
    return len(fields) >= FIELDS and TIME.fullmatch(fields[0]) is not None


def read(reader: CountReader, lines: Iterator[bytes]) -> Iterator[ImportedCount]:
    """Return the counts of the rows."""
    zone = reader.zone_or("America/Los_Angeles")

    def count(text: str) -> ImportedCount:
        time, link_id, _, freeway, direction, _, _, _, observed, flow, *_ = _fields(text)
        known = link_id in reader.links
        if not known and not LINK_ID.fullmatch(link_id):
            raise Refused("Station", link_id, LINK_ID_RULE)
        starts = _starts(time, zone)
        vehicles = _vehicles(flow) if flow else None
        imputed = vehicles is not None and _is_imputed(observed)
        if not known:
            reader.add_link(ImportedLink(link_id, f"Freeway {freeway} {direction}, station {link_id}", zone))
        minute = reader.repeated_hours.minute(link_id, starts)
        return ImportedCount(link_id, minute, vehicles, Quality.IMPUTED if imputed else Quality.OBSERVED)

    return reader.counts(reader.texts(lines), count)


LAYOUTS = (
    Layout(
        "pems-5min",
        "no header, but 12 fields and 5 more a lane: MM/DD/YYYY HH:MM:SS, Station, District, Freeway, Direction, …",
        recognises,
        read,
        ROW_MINUTES,
    ),
)


def _fields(text: str) -> list[str]:
    """Split a row; of the many fields for its lanes only the number is of use."""
    try:
        quoted = fields_of(text, ",") if '"' in text else None
    except csv.Error:
        raise Refused("line", text, "must be comma-separated, with each quote closed") from None
    n = len(quoted) if quoted else text.count(",") + 1
    if n < FIELDS or (n - FIELDS) % LANE_FIELDS:
        raise Refused("line", f"{n} fields: {text}", FIELD_RULE)
    return quoted or [field.strip() for field in text.split(",", FIELDS)]


@lru_cache(maxsize=10_000)  # a time comes once per link, and is slow to read
def _starts(text: str, zone: ZoneInfo) -> Occurrences:
    try:
        local = datetime.strptime(text, "%m/%d/%Y %H:%M:%S")
    except ValueError:
        raise Refused("Timestamp", text, TIME_RULE) from None
    if local.year not in YEARS:
        raise Refused("Timestamp", text, YEAR_RULE)
    try:
        return occurrences(local, zone, ROW_MINUTES)
    except NonexistentTime:
        raise Refused("Timestamp", text, skipped_rule(zone)) from None
    except ValueError:
        raise Refused("Timestamp", text, START_RULE) from None


def _vehicles(text: str) -> int:
    try:
        count = whole_count(text)
    except ValueError:
        count = LARGEST_FLOW + 1
    if count > LARGEST_FLOW:
        raise Refused("Total Flow", text, FLOW_RULE)
    return count


def _is_imputed(observed: str) -> bool:
    if not observed:
        return True  # without a percentage it may be an estimate
    if not PERCENTAGE.fullmatch(observed) or float(observed) > 100:
        raise Refused("% Observed", observed, OBSERVED_RULE)
    return float(observed) < 100
