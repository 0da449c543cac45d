"""What ``flowcast train`` works on: links from files, or from the database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from rich.markup import escape
from sqlalchemy import Engine

from app.commands.console import notes
from app.core.database import reading
from app.core.errors import Problem, no_link
from app.counts.queries import newest_slots
from app.counts.series import LinkSeries, stored_series
from app.links.queries import LinkInfo, all_links, links_by_id
from app.registry.register import mismatch
from app.training.aligned_counts import LinkTopology, read_topology

SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class TrainingWork:
    """Series to learn from, how many, and how many links were left out.

    ``topology`` is how links lie to each other and what a slot of each can pass, and ``beside`` are links of the same
    networks that no model was asked for.
    """

    links: Iterable[LinkSeries]
    n: int
    left_out: int = 0
    topology: dict[str, LinkTopology] = field(default_factory=dict)
    beside: Iterable[LinkSeries] = ()


def stored_work(engine: Engine, link_ids: Collection[str] | None, days: int | None) -> TrainingWork:
    """Take the stored counts of links, or of all, each link's last days or everything."""
    with reading(engine) as session:
        every = {link.link_id: link for link in all_links(session)}
        found = every
        if link_ids is not None:
            if missing := sorted(set(link_ids) - set(every)):
                raise no_link(missing[0])
            found = {link_id: every[link_id] for link_id in link_ids}
        newest = newest_slots(session, [link.link_key for link in every.values()])
        topology = read_topology(session, list(every.values()))
    links = [link for link in found.values() if link.link_key in newest]
    networks = {(link.zone_name, link.slot_minutes) for link in links}
    beside = [
        link
        for link in every.values()
        if link.link_id not in found and link.link_key in newest and (link.zone_name, link.slot_minutes) in networks
    ]
    for link_id in sorted(set(found) - {link.link_id for link in links}):
        notes.print(escape(f"link {link_id!r} has no counts and is left out"), soft_wrap=True)
    if not links:
        raise ValueError("there are no counts in the database")
    return TrainingWork(
        _stored(engine, links, newest, days),
        len(links),
        len(found) - len(links),
        topology,
        _stored(engine, beside, newest, days),
    )


def known_work(engine: Engine, series: dict[str, LinkSeries]) -> TrainingWork:
    """Keep the links of files that could go into the registry, and say why the others could not."""
    with reading(engine) as session:
        known = links_by_id(session, list(series))
        topology = read_topology(session, list(known.values()))
    kept = []
    for one in series.values():
        link = known.get(one.link_id)
        problem: Problem | None = no_link(one.link_id)
        if link is not None:
            problem = mismatch(link, one.zone.key, one.grid.slot_minutes)
        if problem is None:
            kept.append(one)
        else:
            notes.print(escape(f"left out: {problem.detail}"), style="red", soft_wrap=True)
    if not kept:
        raise ValueError("none of the links in the files can go into the registry")
    return TrainingWork(kept, len(kept), len(series) - len(kept), topology)


def _stored(engine: Engine, links: list[LinkInfo], newest: dict[int, int], days: int | None) -> Iterator[LinkSeries]:
    """Read series one at a time, when a process is free to train it; joblib asks from several threads."""
    for link in links:
        first = None
        if days is not None:
            first = newest[link.link_key] + link.slot_seconds - days * SECONDS_A_DAY
        with reading(engine) as session:
            yield stored_series(session, link, first)
