"""List links, page by page."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.links.queries import links_after, upstream_ids
from app.links.schemas import LinkPage
from app.links.store import link_out


def list_links(session: Session, after: str | None, limit: int) -> LinkPage:
    """Return the links that follow an id, and the id to go on from where there are more."""
    found = links_after(session, after or "", limit + 1)
    page = found[:limit]
    upstream = upstream_ids(session, [link.link_key for link in page])
    return LinkPage(
        links=[link_out(link, upstream) for link in page],
        next_cursor=page[-1].link_id if len(found) > limit else None,
    )
