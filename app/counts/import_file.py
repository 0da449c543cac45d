"""Import a file: read to its end, then stored in one transaction, with a report that accounts for every value."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.clock import Clock
from app.counts.import_schemas import ImportedFile
from app.counts.import_spool import Spool
from app.counts.intake import CountSource, Intake
from app.counts.tables import Count
from app.database import writing
from app.links.queries import LinkInfo
from app.monthly_tables import ensure_months
from app.runtime import Runtime
from app.web import metrics

log = logging.getLogger("flowcast.import")

Note = Callable[[int, int], None]


class _DryRun(Exception):
    """Undoes a transaction that was meant to show what it would do."""


@dataclass
class Imported:
    """What became of a file, the links whose newest slot moved forward, and the end of its newest slot."""

    told: ImportedFile
    moved: list[LinkInfo]
    newest_end: int


def import_and_issue(
    runtime: Runtime, source: CountSource, *, create_links: bool, dry_run: bool, note: Note | None = None
) -> ImportedFile:
    """Import a file and issue forecasts for every link whose newest slot moved forward."""
    done = import_file(runtime.engine, source, runtime.clock, create_links=create_links, dry_run=dry_run, note=note)
    if dry_run:
        return done.told
    runtime.clock.seen(done.newest_end)
    metrics.counts_stored(done.told.stored + done.told.replaced)
    try:
        done.told.forecasts_issued = runtime.board.issue(done.moved) if done.moved else 0
    except Exception:  # the counts are stored and must be acknowledged; the forecast is made when it is asked for
        log.exception("forecasts were not issued")
        metrics.forecasts_failed()
    return done.told


def import_file(
    engine: Engine,
    source: CountSource,
    clock: Clock,
    *,
    create_links: bool = False,
    dry_run: bool = False,
    note: Note | None = None,
) -> Imported:
    """Store a file's counts, all that can be or none: a file that cannot be read to its end leaves nothing behind.

    ``note`` is told how many of how many counts are stored so far.
    """
    with Spool() as spool:
        for count in source:
            spool.add(count)
        if not dry_run:
            # Links are written below, and whoever writes links and makes a month holds others up until the end.
            with Session(engine) as session, session.begin():
                ensure_months(session, Count.__tablename__, spool.slots * (60 * source.grid.slot_minutes))
        try:
            with writing(engine) as session:
                intake = Intake(session, source, clock)
                intake.begin(spool.link_ids, create_links)
                for group in spool.groups():
                    intake.take(group)
                    if note is not None:
                        note(intake.seen, len(spool))
                if dry_run:
                    raise _DryRun
        except _DryRun:
            pass
    return Imported(intake.told(dry_run), intake.moved, intake.newest_end)
