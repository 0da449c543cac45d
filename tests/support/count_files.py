"""Synthetic count files, and functions that read them and check that every value is accounted for."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any

from sqlalchemy import Engine

from app.core.clock import Clock, FeedClock
from app.core.slots import SlotGrid
from app.counts.import_file import import_file
from app.counts.importers.files import Source
from app.counts.importers.reader import CountReader
from app.counts.importers.scats import CELLS, TIMES
from app.counts.importers.spool import Spool
from app.counts.ingest import IngestContext
from app.counts.queries import CountRows
from app.counts.schemas import ImportedFile
from app.counts.tables import QUALITIES, Quality
from app.links.queries import LinkInfo
from app.settings import Settings

HEADER = b"link_id,slot_start,count\n"
ROW = b"Ba,2006-10-02T10:15:00Z,12\n"
SURVEY_COLUMNS = ["SCATS Number", "Location", "NB_LATITUDE", "NB_LONGITUDE", "VR Internal Loc", "Start Time"]
SURVEY_HEADER = ",".join([*SURVEY_COLUMNS, *TIMES])
CHECKS = ["NM_REGION", "CT_RECORDS", "QT_VOLUME_24HOUR", "CT_ALARM_24HOUR"]
SIGNALS_HEADER = ",".join(["NB_SCATS_SITE", "QT_INTERVAL_COUNT", "NB_DETECTOR", *CELLS, *CHECKS])


@dataclass(frozen=True)
class SlotCount:
    """A count as it would be stored; the slot by its number on the reader's grid."""

    link_id: str
    slot: int
    count: int
    quality: Quality


def survey_row(day: str, cells: list[Any], site: str = "0970", approach: str = "7") -> str:
    return ",".join(map(str, [site, "HIGH ST W of MAIN RD", -37.8, 145.1, approach, day, *cells]))


def signals_row(day: str, cells: list[Any], *, records: Any = 96, total: Any = None, alarms: Any = 0) -> str:
    total = sum(cell for cell in cells if cell > 0) if total is None else total
    return ",".join(map(str, ["0100", day, 3, *cells, "MEL", records, total, alarms]))


def pems_row(time: str | datetime, flow: Any, *, observed: Any = 100, station: Any = 1108148, lanes: int = 2) -> str:
    time = time if isinstance(time, str) else f"{time:%m/%d/%Y %H:%M:%S}"
    about = [time, station, 11, 101, "N", "ML", ".349", 50, observed, flow, ".0083", 68.5]
    return ",".join(map(str, about)) + ",10,5,.01,65,1" * lanes


def pems_times(first: datetime, n: int) -> list[datetime]:
    return [first + timedelta(minutes=5 * i) for i in range(n)]


WEBTRIS_CLASSES = ["0 - 520 cm", "521 - 660 cm", "661 - 1160 cm", "1160+ cm", "Avg mph"]
WEBTRIS_COLUMNS = ["Site Name", "Report Date", "Time Period Ending", "Time Interval", *WEBTRIS_CLASSES, "Total Volume"]
WEBTRIS_HEADER = ",".join(WEBTRIS_COLUMNS)


def webtris_fields(day: str, end: str, count: Any, site: Any = "M25/4490A") -> dict[str, Any]:
    return dict(zip(WEBTRIS_COLUMNS, [site, day, end, "0", "1", "0", "0", "0", "61", count], strict=True))


def webtris_row(day: str, end: str, count: Any, site: str = "M25/4490A") -> str:
    return ",".join(map(str, webtris_fields(day, end, count, site).values()))


def webtris_ends() -> list[str]:
    """Return the 96 end labels of a day."""
    return [f"{minute // 60:02}:{minute % 60:02}:00" for minute in range(14, 1440, 15)]


def read_all(*lines: str, end: str = "\n", **settings: Any) -> tuple[list[SlotCount], CountReader]:
    return read_bytes(end.join([*lines, ""]).encode(), **settings)


def read_bytes(data: bytes, **settings: Any) -> tuple[list[SlotCount], CountReader]:
    with CountReader(BytesIO(data), **settings) as reader:
        counts = slot_counts(reader)
    report = reader.report
    assert report.counts == len(counts)
    assert report.values == report.counts + report.gaps + report.refused
    assert report.refused == sum(report.reasons.values())
    return counts, reader


def slot_counts(reader: CountReader) -> list[SlotCount]:
    """Read a file and return its counts by link and slot."""
    seconds = 60 * reader.grid.slot_minutes
    with Spool(reader) as spool:
        spool.read()
        spool.sum_into_slots()
        return [
            SlotCount(link_id, int(row["start"]) // seconds, int(row["count"]), Quality(QUALITIES[row["quality"]]))
            for group in spool.groups()
            for link_id, rows in group
            for row in rows
        ]


def import_counts(
    engine: Engine,
    source: Source,
    *,
    clock: Clock | None = None,
    default_zone: str = "",
    moved: list[LinkInfo] | None = None,
    grid: SlotGrid | None = None,
    zone: str | None = None,
    **options: Any,
) -> ImportedFile:
    """Import a file into a database, on the feed clock; ``moved`` gets the links whose newest slot moved forward."""

    def issue(links: Sequence[LinkInfo], stored: CountRows | None = None) -> int:
        if moved is not None:
            moved.extend(links)
        return len(links)

    settings = Settings(default_zone=default_zone)
    context = IngestContext(settings, engine, clock or FeedClock(lambda: None, lambda: 0), issue)
    with CountReader(source, grid=grid or SlotGrid(), zone=zone) as reader:
        return import_file(context, reader, **options)


def refusals(reader: CountReader) -> list[tuple[int, str, str]]:
    return [(refusal.line, refusal.field, refusal.value) for refusal in reader.report.refusals]


def zipped(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


class Pipe(io.RawIOBase):
    """Bytes that can be read once, forwards."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.data.readinto(buffer)
