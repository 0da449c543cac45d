"""Store links, many at once: all of them, or none."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from app.core.errors import MOST_ERRORS, FieldError, Invalid, NotYet
from app.links.queries import (
    link_keys,
    lock_links,
    replace_upstream,
    retire_models,
    stored_link,
    stored_links,
    things_of,
    upstream_ids,
)
from app.links.schemas import LinkBody, LinkIn, LinkOut, LinksReport
from app.links.tables import Link


def store_links(
    session: Session, links: Sequence[LinkIn], *, default_zone: str = "", force: bool = False
) -> LinksReport:
    """Create the links that are new and replace those that are there; refuse all when one breaks a rule.

    A link without a zone keeps the one it has, or gets ``default_zone`` if it is new. Only with ``force`` does the
    zone of a link with counts or models change.
    """
    _refuse_repeats(links)
    lock_links(session)
    there = stored_links(session, [link.link_id for link in links])
    links = _with_zones(links, there, default_zone)
    _refuse_unknown_upstream(session, links)
    _refuse_new_slot_lengths(session, links, there)
    now = datetime.now(UTC)
    _prepare_new_zones(session, links, there, now, force=force)
    before = upstream_ids(session, [link.link_key for link in there.values()])
    new = [link for link in links if link.link_id not in there]
    session.add_all(Link(link_id=link.link_id, created_at=now, updated_at=now, **_values(link)) for link in new)
    updated, fed_anew = 0, [link for link in new if link.upstream]
    for link in (link for link in links if link.link_id in there):
        stored = there[link.link_id]
        other_upstream = sorted(link.upstream) != sorted(before.get(stored.link_key, []))
        fed_anew += [link] if other_upstream else []
        if _replace(stored, _values(link)) or other_upstream:
            stored.updated_at = now
            updated += 1
    session.flush()
    _join(session, fed_anew)
    return LinksReport(created=len(new), updated=updated, unchanged=len(links) - len(new) - updated)


def update_link(session: Session, link_id: str, body: LinkBody, *, force: bool) -> None:
    """Change the fields of a link that ``body`` was given; the others stay."""
    lock_links(session)
    stored = read_link(session, link_id)
    given = body.model_fields_set
    fields = {name: getattr(body if name in given else stored, name) for name in LinkBody.model_fields}
    store_links(session, [LinkIn.model_construct(link_id=link_id, **fields)], force=force)


def read_link(session: Session, link_id: str) -> LinkOut:
    """Return a link as it is stored, or say that it does not exist."""
    stored = stored_link(session, link_id)
    return link_out(stored, upstream_ids(session, [stored.link_key]))


def link_out(stored: Link, upstream: Mapping[int, list[str]]) -> LinkOut:
    """Show a stored link with the links that feed it."""
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
    """Delete a link and all that belongs to it; one that has counts only by force."""
    stored = stored_link(session, link_id)
    things = things_of(session, stored.link_key)
    if things.counts and not force:
        raise NotYet(
            f"link {link_id!r} has {things.counts} counts, which would be deleted with it; force=true does so",
            [FieldError("force", "false", f"must be true to delete {things.counts} counts with the link")],
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


def _replace(stored: Link, values: Mapping[str, Any]) -> bool:
    different = [name for name, value in values.items() if getattr(stored, name) != value]
    for name in different:
        setattr(stored, name, values[name])
    return bool(different)


def _join(session: Session, links: Sequence[LinkIn]) -> None:
    keys = link_keys(session, {link.link_id for link in links} | {name for link in links for name in link.upstream})
    replace_upstream(session, {keys[link.link_id]: [keys[name] for name in link.upstream] for link in links})


def _refuse_repeats(links: Sequence[LinkIn]) -> None:
    times = Counter(link.link_id for link in links)
    rule = "must come once in a batch"
    if repeated := [FieldError("link_id", name, rule) for name, n in times.items() if n > 1]:
        raise NotYet(f"{_named(repeated)} comes more than once in the batch; nothing was stored", repeated)
    own = [FieldError("upstream", link.link_id, "must not name the link itself") for link in links]
    if looped := [error for error, link in zip(own, links, strict=True) if link.link_id in link.upstream]:
        raise NotYet(f"{_named(looped)} lies upstream of itself; nothing was stored", looped)


def _refuse_unknown_upstream(session: Session, links: Sequence[LinkIn]) -> None:
    wanted = {name for link in links for name in link.upstream} - {link.link_id for link in links}
    if unknown := sorted(wanted - set(link_keys(session, wanted))):
        errors = [
            FieldError("upstream", name, "must name links that exist or come in the same batch") for name in unknown
        ]
        raise NotYet(
            f"upstream names links that do not exist: {_named(errors)}; nothing was stored", errors[:MOST_ERRORS]
        )


def _refuse_new_slot_lengths(session: Session, links: Sequence[LinkIn], there: Mapping[str, Link]) -> None:
    stored = [(there[link.link_id], link.slot_minutes) for link in links if link.link_id in there]
    for link, wanted in stored:
        if link.slot_minutes != wanted and any(things := things_of(session, link.link_key)):
            rule = f"must stay {link.slot_minutes} on a link with {things.counts} counts and {things.models} models"
            raise NotYet(
                f"slot_minutes={wanted} is refused for link {link.link_id!r}; it {rule}",
                [FieldError("slot_minutes", str(wanted), rule)],
            )


def _with_zones(links: Sequence[LinkIn], there: Mapping[str, Link], default_zone: str) -> list[LinkIn]:
    zones = {link_id: stored.zone for link_id, stored in there.items()}
    missing = [link.link_id for link in links if not (link.zone or zones.get(link.link_id) or default_zone)]
    if missing:
        rule = "must be an IANA name such as Europe/Berlin: a new link needs a zone unless FLOWCAST_DEFAULT_ZONE is set"
        raise Invalid(
            f"zone='' is refused for the new link {missing[0]!r}; it {rule}; nothing was stored",
            [FieldError("zone", "", f"{rule} (link {link_id!r})") for link_id in missing[:MOST_ERRORS]],
        )
    return [
        link if link.zone else link.model_copy(update={"zone": zones.get(link.link_id, default_zone)}) for link in links
    ]


def _prepare_new_zones(
    session: Session, links: Sequence[LinkIn], there: Mapping[str, Link], now: datetime, *, force: bool
) -> None:
    """Refuse to change the zone of a link with counts or models, or with ``force`` retire what the old zone made."""
    changed = [(there[link.link_id], link.zone) for link in links if link.link_id in there]
    for link, wanted in changed:
        if link.zone == wanted:
            continue
        if any(things := things_of(session, link.link_key)) and not force:
            rule = (
                f"must stay {link.zone!r} on a link with {things.counts} counts and {things.models} models; "
                "?force=true changes it, retires the models and computes new forecasts"
            )
            raise NotYet(
                f"zone={wanted!r} is refused for link {link.link_id!r}; it {rule}", [FieldError("zone", wanted, rule)]
            )
        retire_models(session, link.link_key, now)
        link.choice = None  # it was made among models and a profile of the old zone
        link.forecasts_valid_from = time.time_ns() // 1000


def _named(errors: Sequence[FieldError]) -> str:
    shown = ", ".join(repr(error.value) for error in errors[:3])
    return shown if len(errors) <= 3 else f"{shown} and {len(errors) - 3} more"
