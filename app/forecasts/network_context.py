"""The rows of context that forecasts of a network's links look at, fetched for many links at once.

Only the slots that a row looks at are read: of the links asked for all of them, of the network's other
links the newest and those whose pulse is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.core.network_calendar import network_calendar
from app.core.slots import SlotGrid
from app.counts.queries import counts_between
from app.forecasts.lag_windows import HORIZONS
from app.forecasts.network_deviations import NO_LINK, Members, NetworkDeviationCache, pulse_of
from app.links.queries import LinkInfo
from model.network_model.context import RECENT, moment
from model.network_model.network import Network, NetworkModel, source_of
from model.network_model.series import NetworkCalendar

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

PAST_DAYS = 8  # a week ago, whatever the clocks did since
CALENDARS = 64  # that are kept: one for each network and newest slot of late


class NetworkRows(NamedTuple):
    """Rows of context of several links of one network."""

    columns: list[Array]  # by horizon, (n_links, n_columns)
    usual: Array  # (n_links, n_horizons), in units of the links' scales
    filled: list[int]  # of the recent slots, how many had no count


def rows_of(
    session: Session,
    deviations: NetworkDeviationCache,
    links: Sequence[LinkInfo],
    models: Sequence[NetworkModel],
    newest: int,
) -> NetworkRows:
    """Make the rows of links of one network as of one slot, ``newest``, in Unix seconds; nothing after it is read."""
    network, link = models[0].network, links[0]
    grid, seconds = link.grid, link.slot_seconds
    past = PAST_DAYS * grid.slots_per_day + RECENT
    row = newest // seconds + 1  # the first slot without a known count
    first = row - past
    calendar = _calendar(grid, link.zone, first, past + HORIZONS + 1, network.holidays)
    at = np.array([past])
    horizons = range(1, HORIZONS + 1)
    needed = np.unique(np.concatenate([moment(calendar, at, horizon).slots for horizon in horizons]))

    members = _with_asked(deviations.members(session, network), links, models)
    pulse = deviations.known(network, (needed + first).tolist(), row - 1)
    known = np.isin(needed + first, list(pulse))
    wide, narrow = needed[~known], needed[known]  # slots to read of all links, and of those asked for
    of_all = _read(session, members.keys, wide + first, seconds)
    values = pulse_of(network, members, of_all, calendar, wide)
    news = dict(zip((wide + first).tolist(), values.tolist(), strict=True))
    deviations.keep(network, news, row - 1)

    asked = np.array([model.link for model in models])
    places = _with_related(network, asked)
    counts = np.full((len(places), len(calendar)), np.nan)
    counts[:, wide] = of_all[places]
    counts[np.searchsorted(places, asked)[:, None], narrow] = _read(
        session, members.keys[asked], narrow + first, seconds
    )
    by_place = {slot - first: value for slot, value in (pulse | news).items()}
    source = source_of(network, counts, calendar, places, by_place)
    found = [source.rows(at, horizon, np.searchsorted(places, asked)) for horizon in horizons]
    return NetworkRows(
        [rows.columns[:, 0] for rows in found],
        np.stack([rows.usual[:, 0] for rows in found], axis=1),
        found[0].filled[:, 0].tolist(),
    )


@lru_cache(maxsize=CALENDARS)
def _calendar(grid: SlotGrid, zone: ZoneInfo, first: int, n: int, holidays: str) -> NetworkCalendar:
    return network_calendar(grid, zone, first, n, holidays)


def _with_asked(members: Members, links: Sequence[LinkInfo], models: Sequence[NetworkModel]) -> Members:
    """Return the members with the present keys of the requested links: one may have been deleted and created again."""
    keys = members.keys.copy()
    keys[[model.link for model in models]] = [link.link_key for link in links]
    return members._replace(keys=keys)


def _with_related(network: Network, asked: Slots) -> Slots:
    """Return the places of links and of those at their junctions and upstream of them, in order."""
    junction, upstream = network.others_at_junction(), network.upstream
    places = set(asked.tolist())
    for link in asked.tolist():
        places.update(junction[link], upstream[link])
    return np.array(sorted(places), dtype=np.int64)


def _read(session: Session, keys: Slots, slots: Slots, seconds: int) -> Array:
    """Read the counts of links in slots, by their numbers in order, (n_links, n_slots); NaN where there is none.

    A suspect count is taken as it is, as in a lag window: only whoever learns leaves it out.
    """
    table = np.full((len(keys), len(slots)), np.nan)
    order = np.argsort(keys)
    ordered = keys[order]
    there = ordered[ordered != NO_LINK].tolist()
    for begin, end in _runs(slots):
        rows = counts_between(session, there, int(slots[begin]) * seconds, int(slots[end - 1]) * seconds)
        table[order[np.searchsorted(ordered, rows[:, 0])], begin + rows[:, 1] // seconds - slots[begin]] = rows[:, 2]
    return table


def _runs(slots: Slots) -> list[tuple[int, int]]:
    """Find the runs of consecutive slots."""
    if not len(slots):
        return []
    breaks = np.flatnonzero(np.diff(slots) > 1) + 1
    ends = [0, *breaks.tolist(), len(slots)]
    return list(pairwise(ends))
