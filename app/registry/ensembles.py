"""Start the aggregation of the experts of a link, or continue it where the set of experts changes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.counts.queries import newest_slots
from app.links.queries import ENSEMBLE, LinkInfo, set_choice
from app.links.tables import Link
from app.registry.tables import Ensemble
from model.aggregation.state import Aggregation, pack, unpack

AGGREGATION = "aggregation"  # among what is kept with a model: it is an expert, and these are the weights to start from


def start_aggregation(session: Session, link: LinkInfo, described: dict[str, Any]) -> None:
    """Forecast a link by the aggregate of its experts from now on, with the weights that training described."""
    start = pack(Aggregation.from_json(described).rows(None))[0]  # with an axis for links
    as_of = newest_slots(session, [link.link_key]).get(link.link_key)
    _store(session, link.link_key, as_of, start)
    set_choice(session, link.link_key, ENSEMBLE)


def change_experts(session: Session, link_key: int) -> None:
    """Continue the aggregation of a link with other experts.

    What the former experts expect after the newest slot is computed again by the new ones.
    """
    row = session.get(Ensemble, link_key, populate_existing=True, with_for_update=True)
    if row is not None:
        _store(session, link_key, row.as_of, pack(unpack([row.state]).without_latest())[0])


def has_ensemble(session: Session, link_key: int) -> bool:
    """Return whether a link is forecast by the aggregate of its experts now, whatever it was when it was read."""
    return session.scalar(select(Link.choice).where(Link.link_key == link_key)) == ENSEMBLE


def _store(session: Session, link_key: int, as_of: int | None, state: bytes) -> None:
    row = session.get(Ensemble, link_key, with_for_update=True)
    if row is None:
        session.add(Ensemble(link_key=link_key, as_of=as_of, state=state, start_as_of=as_of, start=state))
    else:
        row.as_of = row.start_as_of = as_of
        row.state = row.start = state
        row.issued_version, row.revision = None, row.revision + 1
    session.flush()
