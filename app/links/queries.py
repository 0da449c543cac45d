"""Links in the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple
from zoneinfo import ZoneInfo

from sqlalchemy import column, delete, func, insert, select, table, text, update
from sqlalchemy.orm import Session

from app.core.database import UtcDateTime, in_values, is_sqlite
from app.core.errors import no_link
from app.core.slots import SlotGrid
from app.links.geometry import Box, bounding_box
from app.links.tables import Link, UpstreamLink

# What a link is forecast by, where that was decided: the aggregate of its experts, its profile because no model was
# better, or its profile because its models were withdrawn.
ENSEMBLE, PROFILE_WON, WITHDRAWN = "ensemble", "profile", "withdrawn"


@dataclass(frozen=True)
class LinkInfo:
    """The facts of a link that counting and forecasting need."""

    link_key: int
    link_id: str
    name: str
    zone_name: str
    slot_minutes: int
    capacity: float | None
    forecasts_valid_from: int = 0  # microseconds since 1970; forecasts issued earlier are not served
    choice: str | None = None  # ENSEMBLE, PROFILE_WON or WITHDRAWN; else it is forecast by the model activated last

    @property
    def zone(self) -> ZoneInfo:
        """Return the link's time zone."""
        return ZoneInfo(self.zone_name)

    @cached_property
    def grid(self) -> SlotGrid:
        """Return the link's slots."""
        return SlotGrid(self.slot_minutes)

    @cached_property
    def slot_seconds(self) -> int:
        """Return the length of a slot, in seconds."""
        return 60 * self.slot_minutes

    @property
    def slot_capacity(self) -> float | None:
        """Return the vehicles that a slot can pass; None if the capacity is unknown."""
        return None if self.capacity is None else self.capacity * self.slot_minutes / 60

    @property
    def has_ensemble(self) -> bool:
        """Return whether the link is forecast by the aggregate of its experts."""
        return self.choice == ENSEMBLE


LINK_INFO = select(
    Link.link_key,
    Link.link_id,
    Link.name,
    Link.zone,
    Link.slot_minutes,
    Link.capacity,
    Link.forecasts_valid_from,
    Link.choice,
)


def links_by_id(session: Session, link_ids: Collection[str]) -> dict[str, LinkInfo]:
    """Return those of the links that exist, by id."""
    return {row.link_id: LinkInfo(*row) for row in session.execute(LINK_INFO.where(in_values(Link.link_id, link_ids)))}


def all_links(session: Session) -> list[LinkInfo]:
    """Return every link, in the order of ids."""
    return [LinkInfo(*row) for row in session.execute(LINK_INFO.order_by(Link.link_id))]


def link_or_404(session: Session, link_id: str) -> LinkInfo:
    """Return a link; raise ``NotFound`` if it does not exist."""
    found = session.execute(LINK_INFO.where(Link.link_id == link_id)).first()
    if found is None:
        raise no_link(link_id)
    return LinkInfo(*found)


def set_choice(session: Session, link_key: int, choice: str | None) -> None:
    """Store what a link is forecast by; None where that is the model activated last."""
    changed = update(Link).where(Link.link_key == link_key, Link.choice.is_distinct_from(choice))
    session.execute(changed.values(choice=choice).execution_options(synchronize_session=False))


class LinkContents(NamedTuple):
    """Numbers of the counts and trained models of a link."""

    counts: int
    models: int


# Counts and trained models belong to later packages, so their tables are named, not imported.
_COUNTS = table("counts", column("link_key"))
_MODELS = table("trained_models", column("link_key"), column("state"), column("retired_at", UtcDateTime))


def link_contents(session: Session, link_key: int) -> LinkContents:
    """Return how many counts and trained models a link has."""
    numbers = [
        select(func.count()).where(table.c.link_key == link_key).scalar_subquery() for table in (_COUNTS, _MODELS)
    ]
    return LinkContents(*session.execute(select(*numbers)).one())


def retire_models(session: Session, link_key: int, now: datetime) -> None:
    """Retire the trained models of a link; none is active afterwards."""
    models = _MODELS.c.link_key == link_key, _MODELS.c.state != "retired"
    session.execute(update(_MODELS).where(*models).values(state="retired", retired_at=now))


def lock_link_table(session: Session) -> None:
    """Lock links against other writers, so that two never create the same; SQLite does so by itself."""
    if not is_sqlite(session):
        session.execute(text("LOCK TABLE links IN SHARE ROW EXCLUSIVE MODE"))  # counts may still come in


def stored_link(session: Session, link_id: str, field: str = "link_id") -> Link:
    """Return the row of a link; raise ``NotFound`` with the field that names it if it does not exist."""
    found = session.scalars(select(Link).where(Link.link_id == link_id)).one_or_none()
    if found is None:
        raise no_link(link_id, field)
    return found


def stored_links(session: Session, link_ids: Collection[str]) -> dict[str, Link]:
    """Return the rows of those of the links that exist, by id."""
    return {link.link_id: link for link in session.scalars(select(Link).where(in_values(Link.link_id, link_ids)))}


def links_after(session: Session, link_id: str, most: int) -> list[Link]:
    """Return the links that follow an id in the order of ids."""
    return list(session.scalars(select(Link).where(Link.link_id > link_id).order_by(Link.link_id).limit(most)))


def link_keys(session: Session, link_ids: Collection[str]) -> dict[str, int]:
    """Return the keys of those of the links that exist."""
    query = select(Link.link_id, Link.link_key).where(in_values(Link.link_id, link_ids))
    return dict(session.execute(query).all())


def upstream_ids(session: Session, keys: Collection[int]) -> dict[int, list[str]]:
    """Return the ids of the links directly upstream of each link that has some, in the order of ids."""
    found: dict[int, list[str]] = {}
    query = select(UpstreamLink.link_key, Link.link_id).join(Link, Link.link_key == UpstreamLink.upstream_key)
    for key, link_id in session.execute(query.where(in_values(UpstreamLink.link_key, keys)).order_by(Link.link_id)):
        found.setdefault(key, []).append(link_id)
    return found


def upstream_of(session: Session, link_id: str) -> list[int]:
    """Return the keys of the links directly upstream of a link."""
    link = stored_link(session, link_id, "upstream_of")
    query = select(UpstreamLink.upstream_key).where(UpstreamLink.link_key == link.link_key)
    return list(session.scalars(query.order_by(UpstreamLink.upstream_key)))


def replace_upstream(session: Session, upstream: Mapping[int, Collection[int]]) -> None:
    """Replace the links upstream of some links, by key."""
    session.execute(delete(UpstreamLink).where(in_values(UpstreamLink.link_key, upstream)))
    pairs = [{"link_key": key, "upstream_key": above} for key, all_above in upstream.items() for above in all_above]
    if pairs:
        session.execute(insert(UpstreamLink), pairs)


def link_boxes(session: Session) -> dict[int, Box]:
    """Return the bounding box of every link that has a geometry: west, south, east, north, by key."""
    rows = session.execute(select(Link.link_key, Link.geometry).where(Link.geometry.is_not(None)))
    return {key: bounding_box(geometry) for key, geometry in rows if geometry is not None}
