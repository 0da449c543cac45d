"""What one file of ``flowcast import`` holds and what became of it, in words and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from rich.markup import escape
from rich.table import Table

from app.commands.console import out
from app.core.slots import EPOCH
from app.counts.importers import CountReader
from app.counts.schemas import ImportedFile

FEW_LINKS = 20
TOTALS = ("layout", "rows", "values", "counts", "suspect", "imputed", "gaps", "refused")
STORED = ("stored", "replaced", "unchanged", "repeated", "links_created", "unknown_links", "forecasts_issued")


@dataclass
class LinkTally:
    """How many counts a link has, and from which slot to which; None where there are none."""

    link_id: str
    name: str
    zone: str | None
    counts: int = 0
    first_slot: str | None = None
    last_slot: str | None = None


@dataclass
class FileTally:
    """What one file holds and what became of it."""

    file: str
    reader: CountReader
    stored: ImportedFile | None = None  # None on a dry run

    def links(self) -> list[LinkTally]:
        """Sum up each link."""
        spans = self.reader.report.spans
        links = [
            LinkTally(link.link_id, link.name, link.zone.key if link.zone else None)
            for link in self.reader.links.values()
        ]
        for link in links:
            if link.link_id in spans:
                first, last, link.counts = spans[link.link_id]
                link.first_slot, link.last_slot = _start(first), _start(last)
        return sorted(links, key=lambda link: link.link_id)

    def slots(self) -> tuple[str | None, str | None]:
        """First and last slot with a count."""
        spans = self.reader.report.spans.values()
        return (_start(min(spans)[0]), _start(max(last for _, last, _ in spans))) if spans else (None, None)


def print_tally(tally: FileTally, refusals: int) -> None:
    """Print what became of a file's values, its links if they are few, and its refused rows."""
    report, links, (first, last) = tally.reader.report, tally.links(), tally.slots()
    taken = f"{report.counts:,} counts ({report.suspect:,} suspect, {report.imputed:,} imputed)"
    said = [
        f"{tally.file}: {report.layout}",
        f"  {report.rows:,} rows, {report.values:,} values = "
        f"{taken} + {report.gaps:,} gaps + {report.refused:,} refused",
        f"  {len(links):,} links, " + (f"slots {first} to {last}" if first else "no counts"),
        *(f"  {note}" for note in report.notes),
        *_stored_lines(tally.stored),
        *(f"  {n:,} suspect: {reason}" for reason, n in report.suspects.most_common()),
        *(f"  {n:,} refused: {reason}" for reason, n in report.reasons.most_common()),
        *(f"  {refusal}" for refusal in report.refusals[:refusals]),
    ]
    if unlisted := report.refused - sum(refusal.values for refusal in report.refusals[:refusals]):
        said.append(f"  {unlisted:,} refused values are not listed")
    out.print(escape("\n".join(said)), soft_wrap=True)
    if 0 < len(links) <= FEW_LINKS:
        table = Table("link", "name", "zone", "counts", "first slot", "last slot")
        for link in links:
            cells = (
                link.link_id,
                link.name,
                link.zone or "-",
                f"{link.counts:,}",
                link.first_slot or "-",
                link.last_slot or "-",
            )
            table.add_row(*map(escape, cells))
        out.print(table)


def _start(seconds: int) -> str:
    return f"{EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%MZ}"


def _stored_lines(stored: ImportedFile | None) -> list[str]:
    if stored is None:
        return []
    said = [
        f"  stored: {stored.stored:,} new, {stored.replaced:,} replaced, {stored.unchanged:,} unchanged, "
        f"{stored.repeated:,} replaced by a later one of the file; {stored.links_created:,} links created, "
        f"{stored.forecasts_issued:,} with a new forecast"
    ]
    if unknown := stored.unknown_links:
        said.append(f"  links that do not exist (--create-links makes them): {', '.join(unknown)}")
    return said


def as_document(tally: FileTally, refusals: int) -> dict[str, Any]:
    """Return the same as JSON."""
    report, (first, last) = tally.reader.report, tally.slots()
    totals = {name: getattr(report, name) for name in TOTALS}
    return {
        "file": tally.file,
        "error": None,
        **totals,
        "first_slot": first,
        "last_slot": last,
        "notes": report.notes,
        "reasons": dict(report.reasons),
        "suspects": dict(report.suspects),
        "refusals": [refusal._asdict() | {"line": refusal.line or None} for refusal in report.refusals[:refusals]],
        "links": [asdict(link) for link in tally.links()],
        **({} if tally.stored is None else {name: getattr(tally.stored, name) for name in STORED}),
    }
