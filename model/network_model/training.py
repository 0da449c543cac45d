"""Training of a network: a base, a metric and a memory for all links, and weights and a memory of each link."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.link_model.intervals import Bands
from model.network_model.base_fit import NormalEquations, fit_alone, fit_base, fit_own
from model.network_model.build_memory import MemoryRows, link_memory, network_memory
from model.network_model.days import BaseForecasts, NetworkDays, ReportProgress, counts_from
from model.network_model.metric import NetworkMetric
from model.network_model.network import Base, Network, NetworkModel
from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkSeries

Array = NDArray[np.float64]

BASE_SHARES = (0.5, 0.75, 1.0)
MIN_ALONE_GAIN = 0.001  # relative gain in RMSE over all links from which weights without the base are used too
MIN_GAIN = 0.005  # relative gain in RMSE from which a memory is used
SHARES = ((0.5, 0.0), (0.0, 0.5), (0.25, 0.25), (0.5, 0.5), (1.0, 0.0), (0.0, 1.0))
MAX_QUERIES = 20_000  # rows by which shares are chosen


class HeldOutForecasts(NamedTuple):
    """Forecasts of the held-out slots, (n_links, n_slots, n_horizons) each, from slot ``first`` on.

    The first horizon of a slot is the slot itself.
    """

    first: int
    network: Array
    base: Array
    profile: Array


class NetworkResult(NamedTuple):
    """A trained network, its links' models, and what training chose."""

    network: Network
    models: tuple[NetworkModel | None, ...]  # None for a link without counts
    held_out: HeldOutForecasts
    ridge: tuple[float | None, ...]  # by horizon; None where the profile alone was better
    own_ridge: tuple[float | None, ...]
    metric: NetworkMetric


def train_network(
    series: NetworkSeries, plan: NetworkPlan | None = None, report: ReportProgress | None = None
) -> NetworkResult:
    """Train a network.

    Penalties, metric and shares are chosen on the last days, with profiles learnt from the days before.
    Weights and memories are then learnt again from all days; the metric is not.
    """
    plan = plan or NetworkPlan()
    days = NetworkDays(series, plan, report) if report else NetworkDays(series, plan)
    before, held, after = days.equations()
    base, own, choice = _choose_base(before, held, plan)
    metric = days.metric(base)
    past = days.memory_rows(base, own, metric.components, final=False)
    base_forecasts = days.forecast_held_out(base, own, metric.components)
    shares, forecasts = _choose_shares(days, past, base_forecasts, plan)
    all_equations = [sums.plus(other) for sums, other in zip(before, after, strict=True)]
    shared = fit_base(all_equations, choice.ridge, scaling=base)
    last_own = fit_own(all_equations, shared, choice.own_ridge) * (choice.kept * choice.shares)[:, :, None]
    last_base = shared.scaled(choice.shares)
    last_own = choice.blended(all_equations, last_base, last_own)
    network, memories = days.build_network(last_base, last_own, metric.components)
    bands = _bands(forecasts, days, plan)
    models = tuple(
        NetworkModel(network, link, last_own[link], memories[link], shares[link], bands[link])
        if days.has_counts[link]
        else None
        for link in range(len(series.link_ids))
    )
    return NetworkResult(network, models, forecasts, _finite(choice.ridge), _finite(choice.own_ridge), metric)


def refresh_network(
    series: NetworkSeries, network: Network, models: dict[str, NetworkModel], plan: NetworkPlan
) -> tuple[Network, dict[str, NetworkModel]]:
    """Add newer counts to profiles and memories, and drop older ones, without training again.

    The model of a link that is new to the network is the base, with rather wide bands of another link.
    """
    days = NetworkDays(series, replace(plan, parts=network.parts))
    own = np.zeros((len(series.link_ids), *network.base.weights.shape))
    for index, link_id in enumerate(series.link_ids):
        if link_id in models:
            own[index] = models[link_id].own
    fresh, memories = days.build_network(network.base, own, network.components)
    known = [model for model in models.values() if model.bands is not None]
    out = {}
    for index, link_id in enumerate(series.link_ids):
        if not days.has_counts[index]:
            continue
        if link_id in models:
            shares, bands = models[link_id].shares, models[link_id].bands
        else:
            shares, bands = np.zeros(2), _bands_for_new_link(known, fresh, index)
        out[link_id] = NetworkModel(fresh, index, own[index], memories[index], shares, bands)
    return fresh, out


class _Choice(NamedTuple):
    ridge: tuple[float, ...]  # by horizon
    own_ridge: tuple[float, ...]
    shares: Array  # (n_horizons,), factors of the base's weights
    kept: Array  # (n_links, n_horizons), 1 for a link with weights of its own, else 0
    alone_ridge: Array  # (n_links, n_horizons), penalty of a link without the base
    alone_shares: Array  # (n_links, n_horizons), weight of the fit without the base

    def blended(self, equations: list[NormalEquations], base: Base, own: Array) -> Array:
        """Return the links' additions to the base's weights, averaged with fits without the base."""
        if not self.alone_shares.any():
            return own
        alone = fit_alone(equations, base, self.alone_ridge) - base.weights
        share = self.alone_shares[:, :, None]
        return np.asarray((1.0 - share) * own + share * alone)


def _choose_base(
    before: list[NormalEquations], held: list[NormalEquations], plan: NetworkPlan
) -> tuple[Base, Array, _Choice]:
    """Choose the penalties on the held-out days, horizon by horizon; the profile alone is one of the candidates.

    Penalties and shares of the base are chosen by all links together. A link then has no weights of its own
    where they increase its error, or where it has no held-out counts.
    """
    has_held_out = held[0].n > 0
    horizons = range(len(before))
    bases = {penalty: fit_base(before, [penalty] * len(before)) for penalty in (*plan.ridge, np.inf)}

    def error(h: int, ridge: float, share: float) -> float:
        return _geometric_mean(held[h].squared_errors(bases[ridge].scaled(share), h)[has_held_out])

    chosen = [min(product(bases, BASE_SHARES), key=lambda pair: error(h, *pair)) for h in horizons]
    ridge, shares = [penalty for penalty, _ in chosen], np.array([share for _, share in chosen])
    shared = fit_base(before, ridge)
    base = shared.scaled(shares)
    owns = {
        penalty: fit_own(before, shared, [penalty] * len(before)) * shares[:, None]
        for penalty in (*plan.own_ridge, np.inf)
    }
    squared = {penalty: [held[h].squared_errors(base, h, own[:, h]) for h in horizons] for penalty, own in owns.items()}
    own_ridge = [min(owns, key=lambda penalty: _geometric_mean(squared[penalty][h][has_held_out])) for h in horizons]
    kept = np.zeros((len(has_held_out), len(before)))
    for h in horizons:
        kept[:, h] = has_held_out & (squared[own_ridge[h]][h] <= squared[np.inf][h] * (1.0 + MIN_GAIN) ** 2)
    own = np.stack([owns[own_ridge[h]][:, h] for h in horizons], axis=1) * kept[:, :, None]
    alone_ridge, alone_shares = _choose_alone(before, held, base, own, plan)
    choice = _Choice(tuple(ridge), tuple(own_ridge), shares, kept, alone_ridge, alone_shares)
    return base, choice.blended(before, base, own), choice


def _choose_alone(
    before: list[NormalEquations], held: list[NormalEquations], base: Base, own: Array, plan: NetworkPlan
) -> tuple[Array, Array]:
    """Choose a penalty for each link without the base, and the horizons at which such weights have a share of 1/2.

    If the links of a network are very different, weights shrunk towards zero are more accurate than weights
    shrunk towards the network's, and the mean of both is more accurate than either.
    """
    has_held_out = held[0].n > 0
    n_links, horizons = len(has_held_out), range(len(before))
    fits = [
        fit_alone(before, base, np.full((n_links, len(before)), penalty)) - base.weights for penalty in plan.alone_ridge
    ]
    squared = np.array([[held[h].squared_errors(base, h, fit[:, h]) for h in horizons] for fit in fits])
    best = np.argmin(squared, axis=0).T  # (n_links, n_horizons)
    ridge = np.asarray(plan.alone_ridge)[best]
    alone = fit_alone(before, base, ridge) - base.weights
    shares = np.zeros(len(before))
    for h in horizons:
        both = held[h].squared_errors(base, h, 0.5 * (own[:, h] + alone[:, h]))
        without = held[h].squared_errors(base, h, own[:, h])
        gain = 1.0 - np.sqrt(_geometric_mean(both[has_held_out]) / _geometric_mean(without[has_held_out]))
        shares[h] = 0.5 if gain >= MIN_ALONE_GAIN else 0.0
    return ridge, shares * has_held_out[:, None]


def _finite(penalties: tuple[float, ...]) -> tuple[float | None, ...]:
    return tuple(None if np.isinf(penalty) else penalty for penalty in penalties)


def _geometric_mean(errors: Array) -> float:
    return float(np.exp(np.log(np.maximum(errors, 1e-12)).mean())) if len(errors) else np.inf


def _choose_shares(
    days: NetworkDays, past: MemoryRows, forecasts: BaseForecasts, plan: NetworkPlan
) -> tuple[Array, HeldOutForecasts]:
    """Choose each link's shares of the memories on the held-out days, and return the forecasts with them."""
    n_links = len(days.series.link_ids)
    step = max(1, -(-n_links * len(forecasts.slots) // MAX_QUERIES))
    rows = np.arange(0, len(forecasts.slots), step)
    network = network_memory(past, plan)
    memories = [link_memory(past, link, plan) for link in range(n_links)]
    missed = (forecasts.observed - forecasts.base)[:, rows, 0] / forecasts.scale[:, rows]
    scored = ~np.isnan(missed) & ~np.isnan(forecasts.points[:, rows]).any(axis=2)
    corrections = np.zeros((2, n_links, len(rows)))
    for link in range(n_links):
        days.report("shares", link, n_links)
        queries = forecasts.points[link, rows[scored[link]]].astype(np.float64)
        for which, memory in enumerate((memories[link], network)):
            corrections[which, link, scored[link]] = memory.estimate(queries)[:, 0]
    missed = np.where(scored, missed, 0.0)
    n = np.maximum(scored.sum(axis=1), 1)
    alone = np.maximum((missed**2).sum(axis=1) / n, 1e-12)
    errors = np.stack(
        [((missed - own * corrections[0] - other * corrections[1]) ** 2).sum(axis=1) / n for own, other in SHARES]
    )
    gains = 1.0 - np.sqrt(errors / alone)  # (n_candidates, n_links)
    means = gains[:, scored.any(axis=1)].mean(axis=1)
    common = int(np.argmax(means))
    # The shares that are best for all links are the default of each link; other shares need a larger gain.
    least = -MIN_GAIN if means[common] >= MIN_GAIN else MIN_GAIN
    shares = np.zeros((n_links, 2))
    for link in np.flatnonzero(scored.any(axis=1)).tolist():
        best = int(np.argmax(gains[:, link]))
        if gains[common, link] >= least:
            shares[link] = SHARES[common]
        elif gains[best, link] >= 2.0 * MIN_GAIN:
            shares[link] = np.array(SHARES[best]) / 2.0
    network_forecasts = forecasts.base.copy()
    for link in np.flatnonzero(shares.any(axis=1)).tolist():
        known = np.flatnonzero(~np.isnan(forecasts.points[link]).any(axis=1))
        queries = forecasts.points[link, known].astype(np.float64)
        for share, memory in zip(shares[link].tolist(), (memories[link], network), strict=True):
            if share:
                network_forecasts[link, known] += share * memory.estimate(queries) * forecasts.scale[link, known, None]
    return shares, HeldOutForecasts(
        int(forecasts.slots[0]), np.maximum(network_forecasts, 0.0), forecasts.base, forecasts.profile
    )


def _bands(held_out: HeldOutForecasts, days: NetworkDays, plan: NetworkPlan) -> list[Bands | None]:
    """Learn each link's bands from its held-out errors, or from those of all links, rescaled, if it has too few."""
    observed = counts_from(days.series, held_out.first, plan.horizons)
    scales = days.profile(days.series.days).scale
    bands: list[Bands | None] = []
    for link in range(len(days.series.link_ids)):
        try:
            bands.append(Bands.learn(held_out.network[link], observed[link], plan.level))
        except ValueError:
            bands.append(None)
    if all(band is not None for band in bands):
        return bands
    center = days.profile(days.series.days).center
    forecasts = (held_out.network - center[:, None, None]) / scales[:, None, None]
    standardised = (observed - center[:, None, None]) / scales[:, None, None]
    common = Bands.learn(forecasts.reshape(-1, plan.horizons), standardised.reshape(-1, plan.horizons), plan.level)
    return [
        band
        or Bands(
            common.level,
            common.edges * scales[link] + center[link],
            common.below * scales[link],
            common.above * scales[link],
        )
        for link, band in enumerate(bands)
    ]


def _bands_for_new_link(known: list[NetworkModel], network: Network, link: int) -> Bands | None:
    """Return the bands of another link of the network, in the units of a new link."""
    if not known:
        return None
    scale, center = float(network.profile.scale[link]), float(network.profile.center[link])
    widths = [float(np.mean(model.bands.above - model.bands.below)) / model.scale for model in known if model.bands]
    model = known[int(np.argsort(widths)[len(widths) * 3 // 4])]  # of the upper quartile of widths
    assert model.bands is not None
    ratio = scale / model.scale
    edges = (model.bands.edges - model.center) * ratio + center
    return Bands(
        model.bands.level,
        edges,
        model.bands.below * ratio,
        model.bands.above * ratio,
    )
