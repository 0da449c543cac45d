"""Store links, many at once: all of them, or none."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from app.core.errors import MOST_ERRORS, Conflict, FieldError, Invalid, ProblemType
from app.links.queries import (
    link_contents,
    link_keys,
    lock_link_table,
    replace_upstream,
    retire_models,
    stored_link,
    stored_links,
    upstream_ids,
)
from app.links.schemas import LinkBody, LinkIn, LinkOut, LinksReport
from app.links.tables import Link


def store_links(
    session: Session, links: Sequence[LinkIn], *, default_zone: str = "", force: bool = False, place: str = ""
) -> LinksReport:
    """Create the links that are new and replace the others; refuse all when one breaks a rule.

    A link without a zone keeps the one it has, or gets ``default_zone`` if it is new. Only with ``force`` does the
    zone of a link with counts or models change. ``place`` is that of a link in the request, such as ``links.{}``.
    """
    paths = {link.link_id: f"{place.format(i)}." if place else "" for i, link in enumerate(links)}
    _refuse_repeats(links, paths)
    lock_link_table(session)
    stored = stored_links(session, [link.link_id for link in links])
    links = _with_zones(links, stored, default_zone, paths)
    _refuse_unknown_upstream(session, links, paths)
    now = datetime.now(UTC)
    new = [link for link in links if link.link_id not in stored]
    existing = [(stored[link.link_id], link) for link in links if link.link_id in stored]
    for row, link in existing:
        _check_slot_length(session, row, link.slot_minutes, paths[link.link_id])
        _check_zone(session, row, link.zone, now, paths[link.link_id], force=force)
    before = upstream_ids(session, [row.link_key for row, _ in existing])
    session.add_all(Link(link_id=link.link_id, created_at=now, updated_at=now, **_values(link)) for link in new)
    updated, moved = 0, [link for link in new if link.upstream]  # moved: with other links upstream than before
    for row, link in existing:
        is_moved = sorted(link.upstream) != sorted(before.get(row.link_key, []))
        moved += [link] if is_moved else []
        for name, value in _values(link).items():
            setattr(row, name, value)
        if session.is_modified(row) or is_moved:
            row.updated_at = now
            updated += 1
    session.flush()
    keys = link_keys(session, {name for link in moved for name in (link.link_id, *link.upstream)})
    replace_upstream(session, {keys[link.link_id]: [keys[name] for name in link.upstream] for link in moved})
    return LinksReport(created=len(new), updated=updated, unchanged=len(existing) - updated)


def update_link(session: Session, link_id: str, body: LinkBody, *, force: bool) -> None:
    """Change the fields of a link that ``body`` sets; the others stay."""
    lock_link_table(session)
    stored = read_link(session, link_id)
    given = body.model_fields_set
    fields = {name: getattr(body if name in given else stored, name) for name in LinkBody.model_fields}
    store_links(session, [LinkIn.model_construct(link_id=link_id, **fields)], force=force)


def read_link(session: Session, link_id: str) -> LinkOut:
    """Return a link as it is stored; raise ``NotFound`` if it does not exist."""
    stored = stored_link(session, link_id)
    return link_out(stored, upstream_ids(session, [stored.link_key]))


def link_out(stored: Link, upstream: Mapping[int, list[str]]) -> LinkOut:
    """Return a stored link with the links upstream of it."""
    return LinkOut.model_validate(
        {
            "link_id": stored.link_id,
            "created_at": stored.created_at,
            "updated_at": stored.updated_at,
            "upstream": upstream.get(stored.link_key, []),
            **{name: getattr(stored, name) for name in ("name", "zone", "geometry", "capacity", "slot_minutes")},
        }
    )


def delete_link(session: Session, link_id: str, *, force: bool) -> None:
    """Delete a link and all that belongs to it; one that has counts only with ``force``."""
    stored = stored_link(session, link_id)
    contents = link_contents(session, stored.link_key)
    if contents.counts and not force:
        raise Conflict(
            ProblemType.LINK_IN_USE,
            f"link {link_id!r} has {contents.counts} counts; force=true deletes them with it",
            [FieldError("force", "false", f"must be true to delete {contents.counts} counts with the link")],
        )
    session.delete(stored)
    session.flush()


def _values(link: LinkIn) -> dict[str, Any]:
    return {
        "name": link.link_id if link.name is None else link.name,
        "zone": link.zone,
        "geometry": None if link.geometry is None else link.geometry.model_dump(mode="json"),
        "capacity": link.capacity,
        "slot_minutes": link.slot_minutes,
    }


def _refuse_repeats(links: Sequence[LinkIn], paths: Mapping[str, str]) -> None:
    times = Counter(link.link_id for link in links)
    rule = "must come once in a batch"
    if repeated := [FieldError(f"{paths[name]}link_id", name, rule) for name, n in times.items() if n > 1]:
        raise Conflict(
            ProblemType.DUPLICATE_LINK,
            f"{_named(repeated)} comes more than once in the batch; nothing was stored",
            repeated,
        )
    rule = "must not name the link itself"
    if looped := [
        FieldError(f"{paths[link.link_id]}upstream", link.link_id, rule)
        for link in links
        if link.link_id in link.upstream
    ]:
        raise Conflict(
            ProblemType.INVALID_UPSTREAM, f"{_named(looped)} lies upstream of itself; nothing was stored", looped
        )


def _refuse_unknown_upstream(session: Session, links: Sequence[LinkIn], paths: Mapping[str, str]) -> None:
    wanted = {name: link.link_id for link in reversed(links) for name in link.upstream}
    for link in links:
        wanted.pop(link.link_id, None)
    if unknown := sorted(set(wanted) - set(link_keys(session, set(wanted)))):
        rule = "must name links that exist or are in the same request"
        errors = [FieldError(f"{paths[wanted[name]]}upstream", name, rule) for name in unknown]
        detail = f"upstream names links that do not exist: {_named(errors)}; nothing was stored"
        raise Conflict(ProblemType.INVALID_UPSTREAM, detail, errors[:MOST_ERRORS])


def _check_slot_length(session: Session, row: Link, wanted: int, path: str) -> None:
    """Refuse to change the slot length of a link with counts or models."""
    if row.slot_minutes != wanted and any(contents := link_contents(session, row.link_key)):
        rule = (
            f"must stay {row.slot_minutes} on a link with counts or models (counts: {contents.counts}, "
            f"models: {contents.models}); create another link"
        )
        raise Conflict(
            ProblemType.LINK_IN_USE,
            f"slot_minutes={wanted} is refused for link {row.link_id!r}; it {rule}",
            [FieldError(f"{path}slot_minutes", str(wanted), rule)],
        )


def _check_zone(session: Session, row: Link, wanted: str, now: datetime, path: str, *, force: bool) -> None:
    """Refuse to change the zone of a link with counts or models, or with ``force`` retire its models."""
    if row.zone == wanted:
        return
    if any(contents := link_contents(session, row.link_key)) and not force:
        rule = (
            f"must stay {row.zone!r} on a link with counts or models (counts: {contents.counts}, "
            f"models: {contents.models}); force=true changes it, retires the models and computes new forecasts"
        )
        raise Conflict(
            ProblemType.LINK_IN_USE,
            f"zone={wanted!r} is refused for link {row.link_id!r}; it {rule}",
            [FieldError(f"{path}zone", wanted, rule)],
        )
    retire_models(session, row.link_key, now)
    row.choice = None  # it was made among models and a profile of the old zone
    row.forecasts_valid_from = time.time_ns() // 1000


def _with_zones(
    links: Sequence[LinkIn], stored: Mapping[str, Link], default_zone: str, paths: Mapping[str, str]
) -> list[LinkIn]:
    zones = {link_id: row.zone for link_id, row in stored.items()}
    missing = [link.link_id for link in links if not (link.zone or zones.get(link.link_id) or default_zone)]
    if missing:
        rule = (
            "is required for the new link {!r}: an IANA name such as Europe/Berlin, unless FLOWCAST_DEFAULT_ZONE is set"
        )
        errors = [FieldError(f"{paths[link_id]}zone", "", rule.format(link_id)) for link_id in missing[:MOST_ERRORS]]
        raise Invalid(f"{errors[0].field} {errors[0].reason}; nothing was stored", errors)
    return [
        link if link.zone else link.model_copy(update={"zone": zones.get(link.link_id, default_zone)}) for link in links
    ]


def _named(errors: Sequence[FieldError]) -> str:
    shown = ", ".join(repr(error.value) for error in errors[:3])
    return shown if len(errors) <= 3 else f"{shown} and {len(errors) - 3} more"
