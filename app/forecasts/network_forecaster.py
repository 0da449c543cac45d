"""Forecasts of network models, all links of a network together.

A row of context needs the network's mean deviation from its profile, slot by slot, and so the counts of all links.
Deviations of slots that are over are kept for a while. So of most slots only the counts of the requested links are
read; all links' are read of the newest slots, whose counts keep coming in, and of those that are not kept.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from weakref import finalize
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.core.slots import SlotGrid
from app.counts.queries import counts_between
from app.counts.series import network_calendar
from app.forecasts.issued_forecast import HORIZONS, Array, Degradation, ForecastRequest, ModelForecast, Reason
from app.links.queries import link_keys
from model.network_model.context import MOST_FILLED, NEIGHBOUR_LAGS, RECENT, context_slots
from model.network_model.deviations import mean_deviation
from model.network_model.forecast_links import forecast_network
from model.network_model.network import Network, NetworkModel, context_source
from model.network_model.series import NetworkCalendar

Slots = NDArray[np.int64]
Group = Sequence[tuple[ForecastRequest, NetworkModel]]  # of one network, as of one slot

PAST_DAYS = 8  # reach the same local slot a week ago, also if the clocks changed since
CALENDARS = 64  # in the cache: one for each network and newest slot
NEWEST = max(4, NEIGHBOUR_LAGS)  # slots whose deviations are never kept; related links' lags are among them
KEPT_SECONDS = 600.0  # after which corrected and late counts are seen
MOST_KEPT = 2048  # slots of a network; eight days as of some hundred different slots need fewer
NO_LINK = -1  # the key of a link that was deleted since the network learnt it

log = logging.getLogger("flowcast.forecasts")


class NetworkRows(NamedTuple):
    """Rows of context of several links of one network."""

    columns: list[Array]  # by horizon, (n_links, n_columns)
    profile: Array  # (n_links, n_horizons), in units of the links' scales
    filled: list[int]  # of the recent slots, how many had no count


@dataclass
class _KnownNetwork:
    """The cached facts of a network, in its order of links: their keys, their scales, and mean deviations by slot."""

    scale: Array
    keys: Slots
    keys_until: float = 0.0
    deviations: dict[int, tuple[float, float]] = field(default_factory=dict)  # each with the time it is kept until


class NetworkForecaster:
    """Computes forecasts of network models, and keeps the deviations of networks as long as these are in use."""

    def __init__(self) -> None:
        self._known: dict[int, _KnownNetwork] = {}  # by the identity of the network
        self._lock = threading.Lock()

    def compute(self, session: Session, requests: Sequence[ForecastRequest]) -> dict[int, ModelForecast | Reason]:
        """Return the forecasts of links with a network model, by link key, or the reasons why there is none."""
        groups: dict[tuple[int, int, str, int], list[tuple[ForecastRequest, NetworkModel]]] = {}
        for request in requests:
            if request.loaded is not None and isinstance(model := request.loaded.model, NetworkModel):
                key = (id(model.network), request.as_of, request.link.zone_name, request.link.slot_minutes)
                groups.setdefault(key, []).append((request, model))
        found: dict[int, ModelForecast | Reason] = {}
        for group in groups.values():
            found |= self._compute_group(session, group)
        return found

    def _compute_group(self, session: Session, group: Group) -> dict[int, ModelForecast | Reason]:
        try:
            return self._forecast(session, group)
        except SQLAlchemyError:
            raise
        except Exception as problem:
            if len(group) > 1:  # one bad link must not spoil the forecasts of the others
                alone = [self._compute_group(session, [one]) for one in group]
                return {key: outcome for one in alone for key, outcome in one.items()}
            request = group[0][0]
            log.exception("a link's context failed", extra={"link": request.link.link_id})
            return {request.link.link_key: Reason(Degradation.FAILED, f"its context failed: {type(problem).__name__}")}

    def _forecast(self, session: Session, group: Group) -> dict[int, ModelForecast | Reason]:
        models = [model for _, model in group]
        rows = self.rows(session, group)
        forecasts = forecast_network(models, rows.columns, rows.profile)
        found: dict[int, ModelForecast | Reason] = {}
        for i, (request, model) in enumerate(group):
            if (gaps := too_many_gaps(rows.filled[i])) is not None:
                found[request.link.link_key] = gaps
            elif not np.isfinite(forecasts.expected[i]).all():
                found[request.link.link_key] = Reason(Degradation.NO_PROFILE, "its network has no profile of it")
            else:
                assert model.bands is not None
                found[request.link.link_key] = ModelForecast(
                    model.algorithm,
                    request.version,
                    model.bands.level,
                    forecasts.expected[i],
                    forecasts.lower[i],
                    forecasts.upper[i],
                    np.maximum(rows.profile[i] * model.scale + model.center, 0.0),
                    rows.filled[i],
                    request.reason,
                )
        return found

    def rows(self, session: Session, group: Group) -> NetworkRows:
        """Compute the rows of context of links of one network as of one slot; no later count is read."""
        request, network = group[0][0], group[0][1].network
        grid, seconds = request.link.grid, request.link.slot_seconds
        past = PAST_DAYS * grid.slots_per_day + RECENT
        newest = request.as_of // seconds
        first = newest + 1 - past
        calendar = _calendar(grid, request.link.zone, first, past + HORIZONS + 1, network.holidays)
        at = np.array([past])  # the first slot without a known count
        horizons = range(1, HORIZONS + 1)
        needed = np.unique(np.concatenate([context_slots(calendar, at, horizon).slots for horizon in horizons]))

        links = np.array([model.link for _, model in group])
        known = self._known_network(session, network)
        keys = known.keys.copy()
        keys[links] = [one.link.link_key for one, _ in group]  # a link may have been deleted and created again
        deviations = self._kept_deviations(known, (needed + first).tolist(), newest)
        is_kept = np.isin(needed + first, list(deviations))
        of_all, of_requested = needed[~is_kept], needed[is_kept]  # the slots to read of all links, and of these
        all_counts = _read_counts(session, keys, of_all + first, seconds)
        profile = network.profile.expected_counts[:, calendar.weekday[of_all], calendar.slot_of_day[of_all]]
        computed = mean_deviation((all_counts - profile) / known.scale[:, None])
        deviations |= dict(zip((of_all + first).tolist(), computed.tolist(), strict=True))
        self._keep_deviations(known, deviations, newest)

        related = _with_related(network, links)
        places = np.searchsorted(related, links)
        counts = np.full((len(related), len(calendar)), np.nan)
        counts[:, of_all] = all_counts[related]
        counts[places[:, None], of_requested] = _read_counts(session, keys[links], of_requested + first, seconds)
        by_place = {slot - first: deviation for slot, deviation in deviations.items()}
        source = context_source(network, counts, calendar, related, by_place)
        found = [source.rows(at, horizon, places) for horizon in horizons]
        return NetworkRows(
            [rows.columns[:, 0] for rows in found],
            np.stack([rows.profile[:, 0] for rows in found], axis=1),
            found[0].filled[:, 0].tolist(),
        )

    def _known_network(self, session: Session, network: Network) -> _KnownNetwork:
        """Return the cached facts of a network, with the current keys of its links."""
        with self._lock:
            known = self._known.get(id(network))
            if known is None:
                known = self._known[id(network)] = _KnownNetwork(network.profile.scale, np.empty(0, dtype=np.int64))
                finalize(network, self._known.pop, id(network), None)  # before another may have its identity
        if time.monotonic() >= known.keys_until:
            found = link_keys(session, network.link_ids)
            known.keys = np.array([found.get(link_id, NO_LINK) for link_id in network.link_ids], dtype=np.int64)
            known.keys_until = time.monotonic() + KEPT_SECONDS
        return known

    def _kept_deviations(self, known: _KnownNetwork, slots: Sequence[int], newest: int) -> dict[int, float]:
        now = time.monotonic()
        with self._lock:
            found = {slot: known.deviations[slot] for slot in slots if slot in known.deviations}
        return {slot: value for slot, (value, until) in found.items() if slot <= newest - NEWEST and now < until}

    def _keep_deviations(self, known: _KnownNetwork, deviations: Mapping[int, float], newest: int) -> None:
        now = time.monotonic()
        with self._lock:
            kept = {slot: one for slot, one in known.deviations.items() if now < one[1]}
            for slot, value in deviations.items():
                if slot <= newest - NEWEST:
                    kept.setdefault(slot, (value, now + KEPT_SECONDS))
            known.deviations = kept if len(kept) <= MOST_KEPT else {}


def too_many_gaps(filled: int) -> Reason | None:
    """Return the reason not to use a model where too many recent counts are filled in; None where few are."""
    most = int(MOST_FILLED * RECENT)
    if filled <= most:
        return None
    return Reason(Degradation.GAPS, f"{filled} of {RECENT} lags are missing; at most {most} may be filled")


@lru_cache(maxsize=CALENDARS)
def _calendar(grid: SlotGrid, zone: ZoneInfo, first: int, n: int, holidays: str) -> NetworkCalendar:
    return network_calendar(grid, zone, first, n, holidays)


def _with_related(network: Network, links: Slots) -> Slots:
    """Return the places of links and of those at their junctions and upstream of them, in order."""
    junction, upstream = network.others_at_junction, network.upstream
    places = set(links.tolist())
    for link in links.tolist():
        places.update(junction[link], upstream[link])
    return np.array(sorted(places), dtype=np.int64)


def _read_counts(session: Session, keys: Slots, slots: Slots, seconds: int) -> Array:
    """Read the counts of links in slots, by their numbers in order, (n_links, n_slots); NaN where there is none.

    Suspect counts are read as they are, as in a lag window; they are left out only of what is learnt from.
    """
    table = np.full((len(keys), len(slots)), np.nan)
    order = np.argsort(keys)
    ordered = keys[order]
    existing = ordered[ordered != NO_LINK].tolist()
    for run in np.split(slots, np.flatnonzero(np.diff(slots) > 1) + 1):  # of consecutive slots
        if len(run):
            rows = counts_between(session, existing, int(run[0]) * seconds, int(run[-1]) * seconds)
            places = order[np.searchsorted(ordered, rows[:, 0])]
            table[places, np.searchsorted(slots, rows[:, 1] // seconds)] = rows[:, 2]
    return table
