"""The sample city: synthetic counts, seeded, for demonstrations and tests (docs/sample-city.md)."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from app.core.csv_cells import as_cell
from app.core.slots import SlotGrid, zone_named
from app.demo.demand import Clock, FloatArray, demand_factors, read_clock, usual_demand
from app.demo.events import KINDS, Event, Plan, apply_detector_faults, describe, plan_events
from app.demo.network import CityLink, Network, build_network
from app.demo.traffic import build_roads, flow_through, local_entries, turning_shares

__all__ = ["City", "CityLink", "Event", "links_geojson", "sample_city", "write_csv"]

ZONE = "Europe/Berlin"
MONDAY = date(2025, 9, 1)  # four weeks from here have neither a public holiday nor a clock change


@dataclass(frozen=True, eq=False)
class City:
    """Links of the sample city and their counts on consecutive slots."""

    links: tuple[CityLink, ...]
    grid: SlotGrid
    zone: str
    first_slot: int
    counts: dict[str, FloatArray]  # by link_id; whole numbers, NaN where a count is missing
    events: tuple[Event, ...]
    left_out: tuple[str, ...]  # kinds of events for which the city or the span is too small


def sample_city(
    links: int = 12,
    days: int = 28,
    seed: int = 0,
    start: date = MONDAY,
    zone: str = ZONE,
    slot_minutes: int = 15,
) -> City:
    """Generate the sample city: the same arguments give the same counts, bit for bit."""
    for name, value, least in (("links", links, 1), ("days", days, 1), ("seed", seed, 0)):
        _require_whole(name, value, least)
    zone_named(zone)
    grid, network = SlotGrid(slot_minutes), build_network(links)
    clock = read_clock(grid, start, days, zone)
    city_links = network.links(zone, slot_minutes)
    plans = plan_events(network, clock, np.random.default_rng([seed, 0]))
    counts = _counts(network, city_links, clock, plans, seed)
    kinds = {plan.kind for plan in plans}
    return City(
        links=city_links,
        grid=grid,
        zone=zone,
        first_slot=clock.first_slot,
        counts={link.link_id: counts[:, i].copy() for i, link in enumerate(city_links)},
        events=tuple(describe(plan, network, clock.first_slot) for plan in plans),
        left_out=tuple(kind for kind in KINDS if kind not in kinds),
    )


def write_csv(city: City, path: str | Path) -> None:
    """Write the counts in Flowcast's own layout, gaps left out; gzip when the name ends in .gz."""
    n = len(next(iter(city.counts.values())))
    starts = [city.grid.start(city.first_slot + i).strftime("%Y-%m-%dT%H:%M:%SZ") for i in range(n)]
    with _text_writer(Path(path)) as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["link_id", "slot_start", "count"])
        for link_id, series in city.counts.items():
            known = np.flatnonzero(~np.isnan(series)).tolist()
            rows.writerows((as_cell(link_id), starts[i], int(series[i])) for i in known)


def links_geojson(city: City) -> dict[str, Any]:
    """Return the links as an RFC 7946 FeatureCollection; capacities are vehicles per hour, as the service has them."""
    features = [
        {
            "type": "Feature",
            "id": link.link_id,
            "geometry": link.geometry,
            "properties": {
                "link_id": link.link_id,
                "name": link.name,
                "zone": link.zone,
                "capacity": link.capacity * 60 / city.grid.slot_minutes,
                "slot_minutes": city.grid.slot_minutes,
                "upstream": list(link.upstream),
            },
        }
        for link in city.links
    ]
    return {"type": "FeatureCollection", "features": features}


def _counts(network: Network, links: tuple[CityLink, ...], clock: Clock, plans: list[Plan], seed: int) -> FloatArray:
    """Generate the counts as the detectors report them, (n_slots, n_links)."""
    habits, swings, road = (np.random.default_rng([seed, stream]) for stream in (1, 2, 3))
    passes = np.array([link.passes for link in links])
    busy = np.array([street.road_class.usual_peak for street in network.streets])
    # A sequence of one draw per link, so that a larger city leaves its first links' peaks alone.
    peaks = passes * busy * np.random.default_rng([seed, 4]).uniform(0.85, 1.1, len(links))
    turns = turning_shares(network, peaks)
    entries = local_entries(usual_demand(network, peaks, clock, habits), turns)
    entries *= demand_factors(clock, len(links), swings)
    roads = build_roads(links, len(entries), plans, road)
    counts = flow_through(entries, roads, turns, plans, road)
    apply_detector_faults(counts, plans)
    return counts


def _require_whole(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} is refused; it must be a whole number of at least {least}")


@contextmanager
def _text_writer(path: Path) -> Iterator[TextIO]:
    if path.suffix != ".gz":
        with path.open("w", encoding="utf-8", newline="") as out:
            yield out
        return
    # No name and no time in the header, so that the same city gives the same file.
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as out,
    ):
        yield out
