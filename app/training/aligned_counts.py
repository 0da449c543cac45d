"""Align the counts of links: one network for the links of a time zone and slot length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.core.holidays import AUTO, holiday_region
from app.counts.series import LinkSeries, as_count_series, network_calendar
from app.links.queries import LinkInfo, stored_links, upstream_ids
from model.link_model.detector_health import Health, examine
from model.network_model.series import NetworkSeries

Slots = NDArray[np.int64]

SAME_PLACE = 4  # decimals of a degree, about 10 m, to which ends of links that meet agree
SAME_SITE = 0.005  # degrees, some 500 m, within which the detectors of a junction lie


@dataclass(frozen=True)
class LinkTopology:
    """The geometry of a link, the links upstream of it, and the vehicles that a slot can pass, as far as known."""

    geometry: Mapping[str, Any] | None = None
    upstream: tuple[str, ...] = ()
    capacity: float | None = None


UNKNOWN = LinkTopology()


def read_topology(session: Session, links: Sequence[LinkInfo]) -> dict[str, LinkTopology]:
    """Return the stored topology of links, by id."""
    rows = stored_links(session, [link.link_id for link in links])
    upstream = upstream_ids(session, [link.link_key for link in links])
    return {
        link.link_id: LinkTopology(
            rows[link.link_id].geometry, tuple(upstream.get(link.link_key, ())), link.slot_capacity
        )
        for link in links
        if link.link_id in rows
    }


def by_network(links: Iterable[LinkSeries]) -> dict[tuple[str, int], list[LinkSeries]]:
    """Group links into networks, which share a time zone and a slot length; a link without a count is in none."""
    groups: dict[tuple[str, int], list[LinkSeries]] = {}
    for link in links:
        if not np.isnan(link.counts).all():
            groups.setdefault((link.zone.key, link.grid.slot_minutes), []).append(link)
    return groups


def align_counts(
    links: Sequence[LinkSeries], topology: Mapping[str, LinkTopology], holidays: str = AUTO
) -> NetworkSeries:
    """Align links of one network from the local midnight before the first count to the last count.

    Suspect counts, those marked and those that detector health finds, are left out.
    """
    grid, zone = links[0].grid, links[0].zone
    region = holiday_region(zone.key, holidays)
    oldest = min(link.first for link in links)
    first = grid.local_day(grid.start(oldest).astimezone(zone).date(), zone).start
    n = max(link.first + len(link) for link in links) - first
    counts = np.full((len(links), n), np.nan)
    index = {link.link_id: i for i, link in enumerate(links)}
    upstream = []
    for i, link in enumerate(links):
        known = topology.get(link.link_id, UNKNOWN)
        suspect, begin = examined(link, known.capacity).suspect, link.first - first
        counts[i, begin : begin + len(link)] = np.where(suspect, np.nan, link.counts)
        upstream.append(tuple(index[other] for other in known.upstream if other in index))
    calendar, ids = network_calendar(grid, zone, first, n, region), tuple(index)
    return NetworkSeries(ids, counts, calendar, junctions(ids, topology), tuple(upstream), first, region)


def examined(link: LinkSeries, capacity: float | None) -> Health:
    """Return the health of a detector, in which counts that are marked as suspect are suspect, too."""
    found = examine(as_count_series(link).without(link.suspect), capacity)
    return found._replace(suspect=found.suspect | link.suspect)


def junctions(link_ids: Sequence[str], topology: Mapping[str, LinkTopology]) -> Slots:
    """Return a number for the junction at which each link ends; -1 where it is unknown.

    Links whose lines end at the same place share one. The detectors of a site lie some way up each
    approach, so those with the site in their ids, 0970-7 and 0970-1, share one where they lie near each
    other or their places are unknown; other detectors share one at the same point.
    """
    ends = [_end(topology.get(link_id, UNKNOWN).geometry) for link_id in link_ids]
    sites = _sites(link_ids, ends)
    numbers: dict[object, int] = {}
    found = np.full(len(link_ids), -1, dtype=np.int64)
    for i, (link_id, end) in enumerate(zip(link_ids, ends, strict=True)):
        name = end if end is not None and end.of_line else sites.get(link_id) or end
        if name is not None:
            found[i] = numbers.setdefault(name, len(numbers))
    return found


class _End(NamedTuple):
    """The end of a line, or a point."""

    longitude: float
    latitude: float
    of_line: bool


def _end(geometry: Mapping[str, Any] | None) -> _End | None:
    """Return where a link ends; None for geometries other than lines and points."""
    if geometry is None or geometry.get("type") not in ("LineString", "Point"):
        return None
    of_line = geometry["type"] == "LineString"
    position = geometry["coordinates"][-1] if of_line else geometry["coordinates"]
    return _End(round(float(position[0]), SAME_PLACE), round(float(position[1]), SAME_PLACE), of_line)


def _sites(link_ids: Sequence[str], ends: Sequence[_End | None]) -> dict[str, str]:
    """Return the site of each link whose id names one, unless its detectors lie too far apart to be one."""
    members: dict[str, list[int]] = {}
    for i, (link_id, end) in enumerate(zip(link_ids, ends, strict=True)):
        site, dash, _ = link_id.rpartition("-")
        if dash and site and (end is None or not end.of_line):
            members.setdefault(site, []).append(i)
    near: dict[str, str] = {}
    for site, of_site in members.items():
        known = np.array([end[:2] for i in of_site if (end := ends[i]) is not None])
        if not len(known) or float(np.ptp(known, axis=0).max()) <= SAME_SITE:
            near |= {link_ids[i]: site for i in of_site}
    return near


def covering_days(links: Sequence[LinkSeries], series: NetworkSeries, held_out_days: int) -> int:
    """Return how many last local days of a network hold the last ``held_out_days`` of its links.

    A link's held-out days are counted in slots from its own last count; links that fell silent more than
    a day before the newest count do not matter.
    """
    slots = held_out_days * series.calendar.slots_per_day
    ends = [link.first + len(link) for link in links]
    oldest = min(end for end in ends if end >= max(ends) - series.calendar.slots_per_day)
    first = max(oldest - slots - series.first, 0)
    return int(series.calendar.day[-1] - series.calendar.day[first]) + 1
