"""Put the counts of links side by side: one network for the links of a time zone and slot length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.network_calendar import AUTO, holidays_of, network_calendar
from app.counts.series import LinkSeries, as_count_series
from model.link_model.detector_health import Health, examine
from model.network_model.series import NetworkSeries

Slots = NDArray[np.int64]

SAME_PLACE = 4  # decimals of a degree, about 10 m, to which ends of links that meet agree
SAME_SITE = 0.005  # degrees, some 500 m, within which the detectors of a junction lie


@dataclass(frozen=True)
class LinkTopology:
    """Where a link lies: where it runs, what runs into it, and what a slot of it can pass; whatever is known."""

    geometry: Mapping[str, Any] | None = None
    upstream: tuple[str, ...] = ()
    capacity: float | None = None


UNKNOWN = LinkTopology()


@dataclass(frozen=True, eq=False)
class AlignedCounts:
    """A network's series, and what was found of each link's counts."""

    series: NetworkSeries
    health: dict[str, Health] = field(default_factory=dict)

    def place(self, link_id: str) -> int:
        """Return a link's place in the network."""
        return self.series.link_ids.index(link_id)


def by_network(links: Iterable[LinkSeries]) -> dict[tuple[str, int], list[LinkSeries]]:
    """Group links by what makes a network: the same time zone and slot length; a link without a count is in none."""
    groups: dict[tuple[str, int], list[LinkSeries]] = {}
    for link in links:
        if not np.isnan(link.counts).all():
            groups.setdefault((link.zone.key, link.grid.slot_minutes), []).append(link)
    return groups


def align_counts(
    links: Sequence[LinkSeries], whereabouts: Mapping[str, LinkTopology], holidays: str = AUTO
) -> AlignedCounts:
    """Align links of one network from the local midnight before the first count to the last count.

    Suspect counts, those marked and those that detector health finds, are left out.
    """
    grid, zone = links[0].grid, links[0].zone
    code = holidays_of(zone.key, holidays)
    oldest = min(link.first for link in links)
    first = grid.local_day(grid.start(oldest).astimezone(zone).date(), zone).start
    n = max(link.first + len(link) for link in links) - first
    counts = np.full((len(links), n), np.nan)
    health = {}
    for place, link in enumerate(links):
        found = examined(link, whereabouts.get(link.link_id, UNKNOWN).capacity)
        begin = link.first - first
        counts[place, begin : begin + len(link)] = np.where(found.suspect, np.nan, link.counts)
        health[link.link_id] = found
    ids = tuple(link.link_id for link in links)
    series = NetworkSeries(
        ids,
        counts,
        network_calendar(grid, zone, first, n, code),
        junctions(ids, whereabouts),
        upstream_places(ids, whereabouts),
        first,
        code,
    )
    return AlignedCounts(series, health)


def examined(link: LinkSeries, capacity: float | None) -> Health:
    """Find what is not to be learnt from, as training a link by itself does."""
    found = examine(as_count_series(link).without(link.suspect), capacity)
    return found._replace(suspect=found.suspect | link.suspect)


def junctions(link_ids: Sequence[str], whereabouts: Mapping[str, LinkTopology]) -> Slots:
    """Return a number for the junction at which each link ends; -1 where it is unknown.

    Links whose lines end at the same place share one. The detectors of a site lie some way up each
    approach, so those with the site in their ids, 0970-7 and 0970-1, share one where they lie near each
    other or nobody knows where; other detectors share one at the same point.
    """
    ends = [_end(whereabouts.get(link_id, UNKNOWN).geometry) for link_id in link_ids]
    sites = _sites(link_ids, ends)
    numbers: dict[object, int] = {}
    found = np.full(len(link_ids), -1, dtype=np.int64)
    for place, (link_id, end) in enumerate(zip(link_ids, ends, strict=True)):
        name = end if end is not None and end.of_line else sites.get(link_id) or end
        if name is not None:
            found[place] = numbers.setdefault(name, len(numbers))
    return found


def upstream_places(link_ids: Sequence[str], whereabouts: Mapping[str, LinkTopology]) -> tuple[tuple[int, ...], ...]:
    """Return the places of the links that run into each; those that are not of the network are left out."""
    place = {link_id: i for i, link_id in enumerate(link_ids)}
    return tuple(
        tuple(place[other] for other in whereabouts.get(link_id, UNKNOWN).upstream if other in place)
        for link_id in link_ids
    )


class _End(NamedTuple):
    """Where a line ends, or where a point is."""

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
    for place, (link_id, end) in enumerate(zip(link_ids, ends, strict=True)):
        site, dash, _ = link_id.rpartition("-")
        if dash and site and (end is None or not end.of_line):
            members.setdefault(site, []).append(place)
    near: dict[str, str] = {}
    for site, places in members.items():
        known = np.array([ends[place][:2] for place in places if ends[place] is not None])  # type: ignore[index]
        if not len(known) or float(np.ptp(known, axis=0).max()) <= SAME_SITE:
            near |= {link_ids[place]: site for place in places}
    return near


def covering_days(links: Sequence[LinkSeries], series: NetworkSeries, held_out_days: int) -> int:
    """Return how many last local days of a network hold the last ``held_out_days`` of its links.

    A link's held-out days are counted in slots from its own last count; links that fell silent more than
    a day before the newest count are not waited for.
    """
    slots = held_out_days * series.calendar.slots_per_day
    ends = [link.first + len(link) for link in links]
    oldest = min(end for end in ends if end >= max(ends) - series.calendar.slots_per_day)
    first = max(oldest - slots - series.first, 0)
    return int(series.calendar.day[-1] - series.calendar.day[first]) + 1
