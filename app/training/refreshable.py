"""Which links a refresh concerns."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.core.errors import FieldError, NotYet
from app.counts.queries import newest_slots
from app.links.queries import LinkInfo
from app.registry.tables import ModelVersion
from model.network_model.network import ALGORITHM as NETWORK


def refreshable(session: Session, links: Sequence[LinkInfo], *, named: bool = False) -> list[LinkInfo]:
    """Return the links that a refresh concerns: those with an active network model, and those with counts alone.

    What another algorithm won on held-out slots stays; a link that was named and is served by such a model
    is refused. A link whose profile won, or whose model was withdrawn, gets a model only where it was named.
    """
    question = select(ModelVersion.link_key, ModelVersion.algorithm).where(ModelVersion.state == "active")
    active = {row.link_key: row.algorithm for row in session.execute(question)}
    others = [link for link in links if active.get(link.link_key, NETWORK) != NETWORK]
    if named and others:
        raise NotYet(
            f"{len(others)} of the links cannot be refreshed; the first is {others[0].link_id!r}",
            [
                FieldError(
                    "links", link.link_id, f"must be served by NETWORK; its active model is {active[link.link_key]}"
                )
                for link in others[:100]
            ],
        )
    if NETWORK not in active.values():
        raise NotYet("there is no active network model that could be refreshed; a NETWORK or best run makes some")
    counted = newest_slots(session, [link.link_key for link in links])
    return [
        link
        for link in links
        if active.get(link.link_key) == NETWORK
        or (link.link_key not in active and link.link_key in counted and (named or link.choice is None))
    ]
