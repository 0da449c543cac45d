"""Streets of the sample city: junctions on an irregular grid and the links that join them.

The streets never depend on a seed, and the first n links of a larger city are the links of a smaller
one. A link is named by its two junctions in the direction of travel: Ba leads from B to A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from math import cos, hypot, radians
from string import ascii_uppercase
from typing import Any, NamedTuple

import numpy as np

# In the German Bight, where there are no roads, so that it is not mistaken for a real town.
ORIGIN_LON, ORIGIN_LAT = 7.0, 54.5
SPACING_M = 500.0
IRREGULARITY = 0.16  # of the spacing, at most, in each direction
TOWN_CENTRE = (-1.3, 0.2)  # in spacings, just west of junction E

# North is up; F is the middle, and the grid grows around it in rings.
FIRST_BLOCK = ("ABG", "EFC", "DHI")
FIRST_LINKS = ("Ba", "Cf", "Fe", "Gb", "Hi", "Ic", "Fb", "Bg", "Ab", "Fc", "Ef", "Hf")

Cell = tuple[int, int]


class RoadClass(NamedTuple):
    """A kind of road: its stated capacity, the vehicles that it passes, and the share that a usual peak hour takes."""

    name: str
    lanes: int
    capacity_per_hour: int  # as stated: above what any slot passes
    passes_per_hour: int  # on average, while a queue discharges
    usual_peak: float  # share of what it passes


ARTERIAL = RoadClass("arterial", 2, 1800, 1720, 0.94)
COLLECTOR = RoadClass("collector", 1, 920, 880, 0.74)
LOCAL = RoadClass("local", 1, 550, 520, 0.58)
ROWS = (ARTERIAL, ARTERIAL, LOCAL, COLLECTOR)  # by row modulo 4, row 0 through F
COLUMNS = (COLLECTOR, LOCAL, ARTERIAL, COLLECTOR)


@dataclass(frozen=True)
class CityLink:
    """A directed link: from junction to junction, with a detector."""

    link_id: str
    name: str
    zone: str
    geometry: dict[str, Any]
    upstream: tuple[str, ...]
    capacity: float  # vehicles per slot, as stated
    passes: float  # vehicles per slot on average, while a queue discharges
    lanes: int


@dataclass(frozen=True)
class Street:
    """A link before it has a zone and a slot: two junctions by number, and their cells."""

    tail: int
    head: int
    start: Cell
    end: Cell

    @property
    def link_id(self) -> str:
        """Return the name of the link: first junction upper-case, second lower-case."""
        return junction_name(self.tail) + junction_name(self.head).lower()

    @property
    def direction(self) -> Cell:
        """Return the step on the grid from tail to head."""
        return self.end[0] - self.start[0], self.end[1] - self.start[1]

    @property
    def road_class(self) -> RoadClass:
        """Return the class of the road, the same in both directions and along a line of the grid."""
        return ROWS[self.start[1] % 4] if self.direction[1] == 0 else COLUMNS[self.start[0] % 4]

    @property
    def inbound(self) -> float:
        """Return how directly the link leads to the town centre: 1 straight in, -1 straight out."""
        distances = [hypot(x - TOWN_CENTRE[0], y - TOWN_CENTRE[1]) for x, y in (self.start, self.end)]
        return distances[0] - distances[1]


@dataclass(frozen=True)
class StreetNetwork:
    """The first n streets, and which lead into which."""

    streets: tuple[Street, ...]

    @cached_property
    def upstream(self) -> tuple[tuple[int, ...], ...]:
        """Return the streets that end where each begins, by number, without the opposite direction."""
        into: dict[int, list[int]] = {}
        for i, street in enumerate(self.streets):
            into.setdefault(street.head, []).append(i)
        return tuple(
            tuple(i for i in into.get(street.tail, ()) if self.streets[i].tail != street.head)
            for street in self.streets
        )

    @cached_property
    def parallel(self) -> tuple[tuple[int, ...], ...]:
        """Return the parallel streets one block to either side in the same direction, to which drivers divert."""
        by_cells = {(s.start, s.end): i for i, s in enumerate(self.streets)}
        return tuple(
            tuple(i for side in (1, -1) if (i := by_cells.get(_moved(street, side))) is not None)
            for street in self.streets
        )

    def links(self, zone: str, slot_minutes: int) -> tuple[CityLink, ...]:
        """Return the streets as links, with capacities per slot."""
        places = _places(1 + max(max(s.tail, s.head) for s in self.streets))
        ids = [street.link_id for street in self.streets]
        return tuple(
            CityLink(
                link_id=ids[i],
                name=f"{junction_name(s.tail)} to {junction_name(s.head)}, {s.road_class.name}",
                zone=zone,
                geometry={"type": "LineString", "coordinates": [list(places[s.tail]), list(places[s.head])]},
                upstream=tuple(ids[u] for u in self.upstream[i]),
                capacity=s.road_class.capacity_per_hour * slot_minutes / 60,
                passes=s.road_class.passes_per_hour * slot_minutes / 60,
                lanes=s.road_class.lanes,
            )
            for i, s in enumerate(self.streets)
        )


def build_street_network(links: int) -> StreetNetwork:
    """Lay out the first ``links`` streets."""
    return StreetNetwork(tuple(islice(_streets(), links)))


def junction_name(number: int) -> str:
    """Return the name of a junction: A to Z, then A1 to Z1, A2 to Z2 and so on."""
    round_, letter = divmod(number, len(ascii_uppercase))
    return ascii_uppercase[letter] + (str(round_) if round_ else "")


def _streets() -> Iterator[Street]:
    """Yield the first links as listed, then each junction joined to its earlier neighbours, both ways."""
    number = {cell: i for i, cell in enumerate(islice(_cells(), 9))}
    cells = {i: cell for cell, i in number.items()}
    for link_id in FIRST_LINKS:
        tail, head = (ascii_uppercase.index(letter) for letter in link_id.upper())
        yield Street(tail, head, cells[tail], cells[head])
    for i, (x, y) in enumerate(_cells()):
        number[x, y] = i
        for near in ((x, y + 1), (x + 1, y), (x, y - 1), (x - 1, y)):
            j = number.get(near, i)
            if j < i:
                both = (Street(i, j, (x, y), near), Street(j, i, near, (x, y)))
                yield from (street for street in both if street.link_id not in FIRST_LINKS)


def _cells() -> Iterator[Cell]:
    """Yield the cells of the junctions in the order of their names: A to I, then ring by ring."""
    block = {letter: (x - 1, 1 - y) for y, row in enumerate(FIRST_BLOCK) for x, letter in enumerate(row)}
    yield from (block[letter] for letter in sorted(block))
    for r in count(2):
        side = range(-r, r)
        yield from ((x, r) for x in side)  # clockwise from the north-west corner
        yield from ((r, -y) for y in side)
        yield from ((-x, -r) for x in side)
        yield from ((-r, y) for y in side)


def _moved(street: Street, side: int) -> tuple[Cell, Cell]:
    dx, dy = street.direction
    (ax, ay), (bx, by) = street.start, street.end
    return (ax - side * dy, ay + side * dx), (bx - side * dy, by + side * dx)


def _places(junctions: int) -> list[tuple[float, float]]:
    """Return each junction's longitude and latitude; with one stream of jitter, so that more junctions move none."""
    jitter = np.random.default_rng(3).uniform(-IRREGULARITY, IRREGULARITY, (junctions, 2))
    lat_step = SPACING_M / 111_320.0  # metres in a degree of latitude
    lon_step = lat_step / cos(radians(ORIGIN_LAT))
    return [
        (round(ORIGIN_LON + (x + dx) * lon_step, 6), round(ORIGIN_LAT + (y + dy) * lat_step, 6))
        for (x, y), (dx, dy) in zip(islice(_cells(), junctions), jitter.tolist(), strict=True)
    ]
