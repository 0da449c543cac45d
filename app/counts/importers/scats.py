"""What the two SCATS layouts of VicRoads share: link ids and the local time of Melbourne."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple
from zoneinfo import ZoneInfo

from app.core.slots import zone_named
from app.counts.importers.local_day import COLUMNS
from app.counts.importers.local_time import day_of
from app.counts.importers.progress import Progress
from app.counts.importers.record import LINK_ID, LINK_ID_RULE


class LinkDay(NamedTuple):
    """A row whose link and day are sound."""

    line: int
    fields: dict[str, str]
    link_id: str
    day: date


def link_days(
    progress: Progress, lines: Iterator[bytes], needed: Sequence[str], *, site: str, part: str, day: str
) -> Iterator[LinkDay]:
    """Return the rows by link and day, which stand in the named columns; a row without either is refused whole."""
    for line, fields in progress.table(lines, needed, values=COLUMNS):
        name, value = site, f"{fields[site]}-{fields[part]}"
        try:
            link_id = link_id_of(fields[site], fields[part])
            name, value = day, fields[day]
            start = day_of(value)
        except ValueError as rule:
            progress.refuse(line, name, value, str(rule), COLUMNS)
        else:
            yield LinkDay(line, fields, link_id, start)


def zone_of(progress: Progress) -> ZoneInfo:
    """Zone of the links: as the caller says, or Melbourne's."""
    return progress.zone or zone_named("Australia/Melbourne")


def link_id_of(site: str, part: str) -> str:
    """Join a site and its approach or detector, leading zeros kept."""
    link_id = f"{site}-{part}"
    if not site or not part or not LINK_ID.fullmatch(link_id):
        raise ValueError(LINK_ID_RULE)
    return link_id
