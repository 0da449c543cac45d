"""Events of the sample city: works, an incident, and detectors that fail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.demo.demand import SATURDAY, CityCalendar, FloatArray
from app.demo.streets import ARTERIAL, StreetNetwork

TEST_DAYS = 3  # kept free of events, as the last days usually judge a forecast ...
SHORT_SPAN = 10  # ... unless the span is shorter than this many days

ROADWORKS, INCIDENT, DEAD, GAP, STUCK = "roadworks", "incident", "dead_detector", "gap", "stuck_value"
KINDS = (ROADWORKS, INCIDENT, DEAD, GAP, STUCK)  # in the order in which a small city gets them
STUCK_NEEDS_LINKS = 6
# Earliest and latest start by local hour, and hours of duration.
WHEN = {ROADWORKS: (7, 7, 11), INCIDENT: (7.5, 17, 1), DEAD: (7, 9, 10), GAP: (9, 13, 6), STUCK: (9, 11, 6)}
CAPACITY_LEFT = {ROADWORKS: 0.35, INCIDENT: 0.12}
DIVERTED = 0.5  # share of the arrivals that roadworks send to the parallel link
DESCRIPTIONS = {
    ROADWORKS: f"capacity at {CAPACITY_LEFT[ROADWORKS]:.0%}; {DIVERTED:.0%} of the traffic diverted to ",
    INCIDENT: f"capacity at {CAPACITY_LEFT[INCIDENT]:.0%}; then the queue discharges",
    DEAD: "detector dead: counts stuck at zero while traffic flows",
    GAP: "no counts received",
    STUCK: "detector stuck: one value repeated while traffic flows",
}


@dataclass(frozen=True)
class Event:
    """Something out of the ordinary on one link, from its first to its last slot."""

    kind: str
    link_id: str
    first_slot: int
    last_slot: int
    description: str
    link: int  # its number
    rows: slice  # of the city's slots
    parallel: int | None = None  # number of the link that takes the diverted traffic


def plan_events(network: StreetNetwork, calendar: CityCalendar, rng: np.random.Generator) -> list[Event]:
    """Choose a link and a day for each kind of event that fits, no link twice on a day."""
    events: list[Event] = []
    taken: set[tuple[int, int]] = set()
    for kind in KINDS:
        place = _choose(_eligible_links(kind, network), _event_days(calendar), taken, rng)
        if place is None:
            continue
        taken.add(place)
        link, day = place
        parallel = int(rng.choice(network.parallel[link])) if kind == ROADWORKS else None
        rows = _rows(kind, day, calendar, rng)
        first, last = calendar.first_slot + rows.start, calendar.first_slot + rows.stop - 1
        text = DESCRIPTIONS[kind] + ("" if parallel is None else network.streets[parallel].link_id)
        events.append(Event(kind, network.streets[link].link_id, first, last, text, link, rows, parallel))
    return events


def apply_detector_faults(counts: FloatArray, events: list[Event]) -> None:
    """Change the counts, in place, where a detector fails; the traffic itself stays as it is."""
    for event in events:
        series = counts[:, event.link]
        if event.kind == DEAD:
            series[event.rows] = 0
        elif event.kind == STUCK:
            series[event.rows] = series[event.rows.start]
        elif event.kind == GAP:
            series[event.rows] = np.nan


def _eligible_links(kind: str, network: StreetNetwork) -> list[int]:
    n = len(network.streets)
    if kind == ROADWORKS:
        return [i for i in range(n) if network.parallel[i]]
    if kind == STUCK and n < STUCK_NEEDS_LINKS:
        return []
    if kind == INCIDENT:  # where there is traffic enough for a queue, and a road for it to back up along
        busy = [i for i in range(n) if network.streets[i].road_class is ARTERIAL and _goes_on(network, i)]
        return busy or list(range(n))
    return list(range(n))


def _goes_on(network: StreetNetwork, link: int) -> bool:
    way = network.streets[link].direction
    return any(network.streets[u].direction == way for u in network.upstream[link])


def _event_days(calendar: CityCalendar) -> list[tuple[int, bool]]:
    """Return the days that may have events, and whether each is a working day."""
    days = int(calendar.day[-1]) + 1
    last = days if days < SHORT_SPAN else days - TEST_DAYS
    starts = np.searchsorted(calendar.day, np.arange(last))
    return [(d, bool(calendar.weekday[i] < SATURDAY)) for d, i in enumerate(starts)]


def _choose(
    links: list[int], days: list[tuple[int, bool]], taken: set[tuple[int, int]], rng: np.random.Generator
) -> tuple[int, int] | None:
    """Pick a link and a day, new ones if there are any, and a working day if there is one."""
    used_links, used_days = {link for link, _ in taken}, {day for _, day in taken}
    for link_pool in ([i for i in links if i not in used_links], links):
        for day_pool in (
            [d for d, working in days if working and d not in used_days],
            [d for d, working in days if working],
            [d for d, _ in days],
        ):
            free = [(i, d) for d in day_pool for i in link_pool if (i, d) not in taken]
            if free:
                return free[int(rng.integers(len(free)))]
    return None


def _rows(kind: str, day: int, calendar: CityCalendar, rng: np.random.Generator) -> slice:
    """Return the rows of an event: it starts at a local hour and does not outlast its day."""
    earliest, latest, hours = WHEN[kind]
    start = rng.uniform(earliest, latest)
    today = np.flatnonzero(calendar.day == day)
    begun = today[calendar.hour[today] >= start]
    first = int(begun[0]) if len(begun) else int(today[-1])
    length = max(1, round(hours * 60 / calendar.grid.slot_minutes))
    return slice(first, min(first + length, int(today[-1]) + 1))
