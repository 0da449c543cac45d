"""Import a file: read and checked to its end, then stored in one transaction, with a report of every value."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine

from app.core import metrics
from app.core.clock import Clock
from app.core.database import reading, writing
from app.counts.import_batches import Intake
from app.counts.import_spool import CountSource, Spool
from app.counts.ingest import IngestContext
from app.counts.schemas import ImportedFile
from app.links.queries import LinkInfo

log = logging.getLogger("flowcast.import")

Note = Callable[[int, int], None]


@dataclass
class Imported:
    """What became of a file, and the links whose newest slot moved forward."""

    told: ImportedFile
    moved: list[LinkInfo]


def import_and_issue(
    context: IngestContext, source: CountSource, *, create_links: bool, dry_run: bool, note: Note | None = None
) -> ImportedFile:
    """Import a file and issue forecasts for every link whose newest slot moved forward."""
    done = import_file(
        context.engine,
        source,
        context.clock,
        create_links=create_links,
        dry_run=dry_run,
        default_zone=context.settings.default_zone,
        note=note,
    )
    if dry_run:
        return done.told
    metrics.COUNTS_STORED.inc(done.told.stored + done.told.replaced)
    try:
        done.told.forecasts_issued = context.issue_forecasts(done.moved) if done.moved else 0
    except Exception:  # the counts are stored and must be acknowledged; the forecast is made when it is asked for
        log.exception("forecasts were not issued")
        metrics.FAILED_ISSUES.inc()
    return done.told


def import_file(
    engine: Engine,
    source: CountSource,
    clock: Clock,
    *,
    create_links: bool = False,
    dry_run: bool = False,
    default_zone: str = "",
    note: Note | None = None,
) -> Imported:
    """Store a file's counts, all that can be or none: a file that cannot be read or summed leaves nothing behind.

    A dry run locks and writes nothing. ``note`` is called with how many of how many counts are stored so far.
    """
    intake = Intake(source, clock, default_zone)
    with Spool(source) as spool:
        spool.read()
        with reading(engine) as session:
            intake.look_up(session, spool.link_ids, create_links)
        spool.sum_into_slots(intake.slot_minutes())
        for group in spool.groups():
            intake.check(group)
        with reading(engine) if dry_run else writing(engine) as session:
            if not dry_run:
                intake.prepare(session)
            for group in spool.groups():
                intake.take(session, group, dry_run=dry_run)
                if note is not None:
                    note(intake.seen, len(spool))
    return Imported(intake.told(dry_run), intake.moved)
