"""Forecasts of held-out days by models that were trained earlier, and may have learnt from these days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.network_model.days import NetworkDays
from model.network_model.network import NetworkModel
from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkSeries

Array = NDArray[np.float64]


class ExpectedCounts(NamedTuple):
    """Forecasts of the slots from ``first`` on, (n_links, n_slots, n_horizons); NaN where there is none.

    The first horizon of a slot is the slot itself.
    """

    first: int
    expected: Array


def forecast_held_out(series: NetworkSeries, models: Mapping[str, NetworkModel], plan: NetworkPlan) -> ExpectedCounts:
    """Forecast the held-out slots with models that were trained earlier, as a new network's are forecast.

    Their profiles and memories may cover the held-out days. So profiles are learnt again from the days
    before, and memories are cut there. Models may belong to several networks.
    """
    days = NetworkDays(series, plan)
    calendar = series.calendar
    first = int(np.searchsorted(calendar.day - calendar.day[0], days.held_out_start))
    expected = np.full((len(series.link_ids), len(calendar) - first, plan.horizons), np.nan)
    of_network: dict[int, list[tuple[int, NetworkModel]]] = {}
    for link, link_id in enumerate(series.link_ids):
        if (model := models.get(link_id)) is not None:
            of_network.setdefault(id(model.network), []).append((link, model))
    for group in of_network.values():
        network = group[0][1].network
        walk = replace(days, plan=replace(plan, parts=network.parts))
        before = series.first + first - network.horizons
        known_network = replace(network, memory=network.memory.until(before))
        cut_models = [replace(model, network=known_network, memory=model.memory.until(before)) for _, model in group]
        links = np.array([link for link, _ in group])
        for day in range(days.held_out_start, series.days):
            source, slots = walk.source(days.validation_profile(day)), days.slots_of(day)
            rows = [source.rows(slots, h + 1, links) for h in range(min(plan.horizons, network.horizons))]
            for i, (link, model) in enumerate(zip(links.tolist(), cut_models, strict=True)):
                complete = np.flatnonzero(~np.isnan(rows[0].columns[i]).any(axis=1))
                profile = np.stack([of_horizon.profile[i, complete] for of_horizon in rows], axis=1)
                standardised = profile + model.deviations([of_horizon.columns[i, complete] for of_horizon in rows])
                vehicles = standardised * source.profile.scale[link] + source.profile.center[link]
                expected[link, slots[complete] - first, : len(rows)] = np.maximum(vehicles, 0.0)
    return ExpectedCounts(first, expected)
