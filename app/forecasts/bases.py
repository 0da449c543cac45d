"""What decides a link's answer: its newest count and its active model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.orm import Session

from app.counts.queries import newest_slots
from app.forecasts.issue import Statement
from app.links.queries import LinkInfo
from app.registry.queries import active_models


class Basis(NamedTuple):
    """What decides a link's answer."""

    link: LinkInfo
    as_of: int | None  # newest slot with a count, in Unix seconds
    active_version: int  # 0 without an active model


def read_bases(session: Session, links: Sequence[LinkInfo]) -> list[Basis]:
    """Read what decides the answers of links."""
    keys = [link.link_key for link in links]
    newest, active = newest_slots(session, keys), active_models(session, keys)
    return [
        Basis(link, newest.get(link.link_key), active[link.link_key].version if link.link_key in active else 0)
        for link in links
    ]


def basis_of(said: Statement) -> Basis:
    """Give what a statement of the active model was decided by."""
    return Basis(said.link, said.as_of, said.model_version)
