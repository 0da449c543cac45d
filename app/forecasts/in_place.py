"""What SQLite tells of a link's forecast in microseconds, over a connection that is always open.

A session would take a hundred times as long, and a thread to wait in.
"""

from __future__ import annotations

from time import monotonic

from app.core.change_feed import Changes
from app.forecasts.bases import Basis
from app.forecasts.entry import Entry, Rendered
from app.forecasts.following import MOST_BEHIND
from app.forecasts.issue import Statement
from app.forecasts.queries import AS_OF, COLUMNS, as_of_parameters, is_served, statement_of
from app.forecasts.windows import HORIZONS
from app.links.queries import LinkInfo

_WHERE = f"WHERE link_key = ? AND model_version = ? AND {AS_OF.format('?')} ORDER BY horizon"
_STATED = f"SELECT {COLUMNS} FROM forecasts {_WHERE}"  # nosec B608 # constants of ours


def brought_up_to_date(changes: Changes, entry: Entry, stamp: object) -> Entry | None:
    """Give a link's entry as of a stamp, the same or another; None where it cannot be told in microseconds."""
    basis, link = entry.basis, entry.basis.link
    deciding = None if basis.as_of is None else changes.deciding(link.link_key)
    if deciding is None or deciding.newest is None:
        return None
    if (deciding.valid_from, deciding.choice) != (link.forecasts_valid_from, link.choice):
        return None
    newest, version = deciding.newest, deciding.version
    if (newest, version) == (basis.as_of, basis.active_version):
        entry.stamp, entry.behind_since = stamp, None
        return entry
    said = _stated(changes, link, newest, version)
    if said is not None:
        return Entry(Basis(link, newest, version), stamp, Rendered(said))
    if version != basis.active_version:
        return None
    if entry.behind_since is None:  # whoever stored the count is about to issue the forecast
        entry.behind_since = monotonic()
    return entry if monotonic() < entry.behind_since + MOST_BEHIND else None


def _stated(changes: Changes, link: LinkInfo, newest: int, version: int) -> Statement | None:
    """Give what was issued from a link's newest slot by its active version; None where nothing was yet."""
    rows = changes.in_place(_STATED, (link.link_key, version, *as_of_parameters(newest, link.slot_seconds)))
    return statement_of(link, newest, rows) if len(rows) == HORIZONS and is_served(link, rows[0]) else None
