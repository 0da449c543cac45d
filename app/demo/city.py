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
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from app.core.slots import SlotGrid
from app.demo.demand import CityCalendar, FloatArray, city_calendar, demand_factors, usual_demand
from app.demo.events import CAPACITY_LEFT, DIVERTED, KINDS, Event, apply_detector_faults, plan_events
from app.demo.streets import SPACING_M, CityLink, StreetNetwork, build_street_network
from app.http.csv import as_cell

STRAIGHT_ON, TURNING = 0.55, 0.20  # share of a link's traffic that goes on into the next one
FED_AT_MOST = 0.72  # of a link's usual traffic; the rest enters along it
ENTERS_AT_LEAST = 0.10
ARRIVES = (0.7, 0.3)  # one and two slots after leaving the link upstream
DISPERSION_SHAPE = 300.0  # of the gamma that makes Poisson arrivals a little restless: signals, platoons
CAPACITY_SPREAD = 0.04  # either way: no two slots serve the same number
QUEUED_LENGTH_M = 7.5  # of road per waiting vehicle
PATIENCE = 5.0  # full links' worth of queue, beyond which drivers go elsewhere
SPILLBACK = 1.5  # a full link blocks more than the lane that leads to it
MOST_BLOCKED = 0.85

ZONE = "Europe/Berlin"
MONDAY = date(2025, 9, 1)  # four weeks from here have neither a public holiday nor a clock change


class Turns(NamedTuple):
    """The links before and after each link, as (n_links, 3) indices with shares; 0 where there is none."""

    upstream: NDArray[np.int64]
    share_from: FloatArray
    downstream: NDArray[np.int64]
    share_to: FloatArray


class Roads(NamedTuple):
    """Vehicles that each link can pass in an ordinary slot, in each slot, (n_slots, n_links), and hold in a queue."""

    capacity: FloatArray
    able: FloatArray
    storage: FloatArray


def turning_shares(network: StreetNetwork, peaks: FloatArray) -> Turns:
    """Return the share of each link's vehicles that continue into each link downstream."""
    n = len(network.streets)
    none, nowhere = np.zeros((n, 3)), np.zeros((n, 3), dtype=np.int64)
    turns = Turns(nowhere, none, nowhere.copy(), none.copy())
    exits = np.zeros(n, dtype=np.int64)
    for i, feeders in enumerate(network.upstream):
        ways = [network.streets[u].direction == network.streets[i].direction for u in feeders]
        # A small road takes no more than its part of a big one's traffic.
        shares = [
            (STRAIGHT_ON if on else TURNING) * min(1.0, peaks[i] / peaks[u])
            for u, on in zip(feeders, ways, strict=True)
        ]
        fed = sum(share * peaks[u] for share, u in zip(shares, feeders, strict=True))
        scale = min(1.0, FED_AT_MOST * peaks[i] / fed) if fed else 0.0
        for slot, (u, share) in enumerate(zip(feeders, shares, strict=True)):
            turns.upstream[i, slot], turns.share_from[i, slot] = u, share * scale
            turns.downstream[u, exits[u]], turns.share_to[u, exits[u]] = i, share * scale
            exits[u] += 1
    return turns


def local_entries(usual: FloatArray, turns: Turns) -> FloatArray:
    """Return the traffic that joins along the link itself: the usual demand beyond what is passed on to it."""
    before = np.vstack([usual[:1], usual[:1], usual])
    passed = ARRIVES[0] * before[1:-1] + ARRIVES[1] * before[:-2]
    fed = np.zeros_like(usual)
    for way in range(3):
        fed += turns.share_from[:, way] * passed[:, turns.upstream[:, way]]
    return np.maximum(ENTERS_AT_LEAST * usual, usual - fed)


def build_roads(links: tuple[CityLink, ...], n_slots: int, events: list[Event], rng: np.random.Generator) -> Roads:
    """Return the vehicles that each link can pass and hold, works and incidents included."""
    capacity = np.array([link.passes for link in links])
    lanes = np.array([link.lanes for link in links])
    able = capacity * rng.uniform(1 - CAPACITY_SPREAD, 1 + CAPACITY_SPREAD, (n_slots, len(links)))
    for event in events:
        able[event.rows, event.link] *= CAPACITY_LEFT.get(event.kind, 1.0)
    # Whole vehicles, or the counts would not be whole.
    return Roads(capacity, np.floor(able), np.floor(lanes * SPACING_M / QUEUED_LENGTH_M))


def flow_through(
    entries: FloatArray, roads: Roads, turns: Turns, events: list[Event], rng: np.random.Generator
) -> FloatArray:
    """Simulate the vehicles that pass each link in each slot, (n_slots, n_links), whole numbers."""
    n_slots, n_links = entries.shape
    restless = rng.gamma(DISPERSION_SHAPE, 1 / DISPERSION_SHAPE, entries.shape)
    passed = np.zeros((n_slots + 2, n_links))
    passed[:2] = np.minimum(entries[0], roads.able[0])  # two slots before the first: the night before
    queue, blocked = np.zeros(n_links), np.zeros(n_links)
    for t in range(n_slots):
        leaving = ARRIVES[0] * passed[t + 1] + ARRIVES[1] * passed[t]
        expected = entries[t] + (turns.share_from * leaving[turns.upstream]).sum(axis=1)
        _divert(expected, t, events)
        waiting = queue + rng.poisson(expected * restless[t])
        passed[t + 2] = np.minimum(waiting, np.floor(roads.able[t] * (1 - blocked)))
        queue = np.minimum(waiting - passed[t + 2], PATIENCE * roads.storage)
        blocked = _spillback(queue, passed[t + 2], roads, turns)
    return passed[2:]


def _spillback(queue: FloatArray, passed: FloatArray, roads: Roads, turns: Turns) -> FloatArray:
    """Return the part of each link's capacity that full links downstream take.

    A link that is full but flows at capacity takes as much as it ever did; one that is full and
    stands still takes nothing.
    """
    standing = np.clip(queue / roads.storage - 1, 0, 1) * np.clip(1 - passed / roads.capacity, 0, 1)
    lost: FloatArray = SPILLBACK * (turns.share_to * standing[turns.downstream]).sum(axis=1)
    return np.minimum(lost, MOST_BLOCKED)


def _divert(expected: FloatArray, t: int, events: list[Event]) -> None:
    for event in events:
        if event.parallel is not None and event.rows.start <= t < event.rows.stop:
            moved = DIVERTED * expected[event.link]
            expected[event.link] -= moved
            expected[event.parallel] += moved


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

    @property
    def slots(self) -> range:
        """Return the numbers of the slots."""
        return range(self.first_slot, self.first_slot + len(next(iter(self.counts.values()))))


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
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r} is refused; it must be a whole number of at least {least}")
    grid, network = SlotGrid(slot_minutes), build_street_network(links)
    calendar = city_calendar(grid, start, days, zone)
    city_links = network.links(zone, slot_minutes)
    events = plan_events(network, calendar, np.random.default_rng([seed, 0]))
    counts = _counts(network, city_links, calendar, events, seed)
    kinds = {event.kind for event in events}
    return City(
        links=city_links,
        grid=grid,
        zone=zone,
        first_slot=calendar.first_slot,
        counts={link.link_id: counts[:, i].copy() for i, link in enumerate(city_links)},
        events=tuple(events),
        left_out=tuple(kind for kind in KINDS if kind not in kinds),
    )


def write_csv(city: City, path: str | Path) -> None:
    """Write the counts in Flowcast's own layout, gaps left out; gzip when the name ends in .gz."""
    starts = [city.grid.start(slot).strftime("%Y-%m-%dT%H:%M:%SZ") for slot in city.slots]
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


def _counts(
    network: StreetNetwork, links: tuple[CityLink, ...], calendar: CityCalendar, events: list[Event], seed: int
) -> FloatArray:
    """Generate the counts as the detectors report them, (n_slots, n_links)."""
    habits, swings, road = (np.random.default_rng([seed, stream]) for stream in (1, 2, 3))
    passes = np.array([link.passes for link in links])
    busy = np.array([street.road_class.usual_peak for street in network.streets])
    # A sequence of one draw per link, so that a larger city leaves its first links' peaks alone.
    peaks = passes * busy * np.random.default_rng([seed, 4]).uniform(0.85, 1.1, len(links))
    turns = turning_shares(network, peaks)
    entries = local_entries(usual_demand(network, peaks, calendar, habits), turns)
    entries *= demand_factors(calendar, len(links), swings)
    roads = build_roads(links, len(entries), events, road)
    counts = flow_through(entries, roads, turns, events, road)
    apply_detector_faults(counts, events)
    return counts


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
