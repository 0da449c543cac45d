"""How the links of the service lie to each other."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.links.queries import LinkInfo, stored_links, upstream_ids
from app.training.aligned_counts import LinkTopology


def read_topology(session: Session, links: Sequence[LinkInfo]) -> dict[str, LinkTopology]:
    """Return what is stored of links: geometry, upstream links and capacity, by id."""
    rows = stored_links(session, [link.link_id for link in links])
    above = upstream_ids(session, [link.link_key for link in links])
    return {
        link.link_id: LinkTopology(
            rows[link.link_id].geometry,
            tuple(above.get(link.link_key, ())),
            None if link.capacity is None else link.capacity * link.slot_minutes / 60,
        )
        for link in links
        if link.link_id in rows
    }
