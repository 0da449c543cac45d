"""Training a network: one base, one metric and one memory for all links, and each link's own part of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.link_model.intervals import Bands
from model.network_model.base_fit import NormalEquations, fit_alone, fit_base, fit_own
from model.network_model.days import HeldOutForecasts, NetworkDays, Report, counts_from
from model.network_model.metric import NetworkMetric
from model.network_model.network import Base, Network, NetworkModel
from model.network_model.plan import NetworkPlan
from model.network_model.remembering import Remembered, network_memory, own_memory
from model.network_model.series import NetworkSeries

Array = NDArray[np.float64]

BASE_SHARES = (0.5, 0.75, 1.0)
LEAST_ALONE_GAIN = 0.001  # in RMSE over all links, for which links are also learnt by themselves
LEAST_GAIN = 0.005  # in RMSE, for which a memory is asked
SHARES = ((0.5, 0.0), (0.0, 0.5), (0.25, 0.25), (0.5, 0.5), (1.0, 0.0), (0.0, 1.0))
MOST_QUERIES = 20_000  # on which shares are chosen


class Judged(NamedTuple):
    """Forecasts of the held-out slots, (n_links, n_slots, n_horizons) each, from slot ``first`` on.

    A row is the moment before its slot: its first horizon is that slot.
    """

    first: int
    network: Array
    base: Array
    usual: Array


class NetworkResult(NamedTuple):
    """A trained network, its links' models, and how it was arrived at."""

    network: Network
    models: tuple[NetworkModel | None, ...]  # None for a link without counts
    judged: Judged
    ridge: tuple[float | None, ...]  # by horizon; None where the profile alone was better
    own_ridge: tuple[float | None, ...]
    metric: NetworkMetric


def train_network(
    series: NetworkSeries, plan: NetworkPlan | None = None, report: Report | None = None
) -> NetworkResult:
    """Train a network.

    Everything is chosen on the last days, with profiles as they were before them, then learnt again
    from all days; the metric that was judged is kept.
    """
    plan = plan or NetworkPlan()
    days = NetworkDays(series, plan, report or (lambda _what, _done, _of: None))
    before, held, after = days.equations()
    base, own, choice = _choose_base(before, held, plan)
    metric = days.metric(base)
    past = days.remembered(base, own, metric.components, final=False)
    judged = days.judged(base, own, metric.components)
    shares, forecasts = _choose_shares(days, past, judged, plan)
    everything = [one.plus(other) for one, other in zip(before, after, strict=True)]
    whole = fit_base(everything, choice.ridge, like=base)
    last_own = fit_own(everything, whole, choice.own_ridge) * (choice.kept * choice.shares)[:, :, None]
    last_base = whole.taken(choice.shares)
    last_own = choice.blended(everything, last_base, last_own)
    network, memories = days.finished(last_base, last_own, metric.components)
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
    """Add newer counts to profiles and memories, and drop older ones, without training anew.

    A link that is new to the network is forecast by what is common to all, within the widest of the others' bands.
    """
    days = NetworkDays(series, replace(plan, parts=network.parts), lambda _what, _done, _of: None)
    own = np.zeros((len(series.link_ids), *network.base.weights.shape))
    for place, link_id in enumerate(series.link_ids):
        if link_id in models:
            own[place] = models[link_id].own
    fresh, memories = days.finished(network.base, own, network.components)
    known = [model for model in models.values() if model.bands is not None]
    out = {}
    for place, link_id in enumerate(series.link_ids):
        if not days.has_counts[place]:
            continue
        if link_id in models:
            shares, bands = models[link_id].shares, models[link_id].bands
        else:
            shares, bands = np.zeros(2), _borrowed(known, fresh, place)
        out[link_id] = NetworkModel(fresh, place, own[place], memories[place], shares, bands)
    return fresh, out


class _Choice(NamedTuple):
    ridge: tuple[float, ...]  # by horizon
    own_ridge: tuple[float, ...]
    shares: Array  # (n_horizons,), how much of the base's forecast is taken
    kept: Array  # (n_links, n_horizons), 1 for a link that keeps weights of its own, else 0
    alone_ridge: Array  # (n_links, n_horizons), penalty of a link by itself
    alone_shares: Array  # (n_links, n_horizons), how much of the answer is left to the link by itself

    def blended(self, equations: list[NormalEquations], base: Base, own: Array) -> Array:
        """Return what links add to the base's weights, some of it learnt by themselves."""
        if not self.alone_shares.any():
            return own
        alone = fit_alone(equations, base, self.alone_ridge) - base.weights
        share = self.alone_shares[:, :, None]
        return np.asarray((1.0 - share) * own + share * alone)


def _choose_base(
    before: list[NormalEquations], held: list[NormalEquations], plan: NetworkPlan
) -> tuple[Base, Array, _Choice]:
    """Choose the penalties on the held-out days, horizon by horizon; the profile alone is among the candidates.

    Penalties, and how much of the base's forecast is taken, are chosen by all links together. Then each
    link goes without a part of its own where that made it worse, or where nothing judges it.
    """
    judged = held[0].n > 0
    horizons = range(len(before))
    bases = {one: fit_base(before, [one] * len(before)) for one in (*plan.ridge, np.inf)}

    def error(h: int, ridge: float, share: float) -> float:
        return _geometric_mean(held[h].squared_errors(bases[ridge].taken(share), h)[judged])

    chosen = [min(product(bases, BASE_SHARES), key=lambda pair: error(h, *pair)) for h in horizons]
    ridge, shares = [one for one, _ in chosen], np.array([share for _, share in chosen])
    whole = fit_base(before, ridge)
    base = whole.taken(shares)
    owns = {one: fit_own(before, whole, [one] * len(before)) * shares[:, None] for one in (*plan.own_ridge, np.inf)}
    squared = {one: [held[h].squared_errors(base, h, own[:, h]) for h in horizons] for one, own in owns.items()}
    own_ridge = [min(owns, key=lambda one: _geometric_mean(squared[one][h][judged])) for h in horizons]
    kept = np.zeros((len(judged), len(before)))
    for h in horizons:
        kept[:, h] = judged & (squared[own_ridge[h]][h] <= squared[np.inf][h] * (1.0 + LEAST_GAIN) ** 2)
    own = np.stack([owns[own_ridge[h]][:, h] for h in horizons], axis=1) * kept[:, :, None]
    alone_ridge, alone_shares = _choose_alone(before, held, base, own, plan)
    choice = _Choice(tuple(ridge), tuple(own_ridge), shares, kept, alone_ridge, alone_shares)
    return base, choice.blended(before, base, own), choice


def _choose_alone(
    before: list[NormalEquations], held: list[NormalEquations], base: Base, own: Array, plan: NetworkPlan
) -> tuple[Array, Array]:
    """Choose a penalty for each link by itself, and at which horizons such weights are worth half of the answer.

    Where links differ in kind rather than by degree, weights drawn to nothing do better than weights drawn to
    the network's; the mean of both does better than either.
    """
    judged = held[0].n > 0
    n_links, horizons = len(judged), range(len(before))
    fits = [fit_alone(before, base, np.full((n_links, len(before)), one)) - base.weights for one in plan.alone_ridge]
    squared = np.array([[held[h].squared_errors(base, h, fit[:, h]) for h in horizons] for fit in fits])
    best = np.argmin(squared, axis=0).T  # (n_links, n_horizons)
    ridge = np.asarray(plan.alone_ridge)[best]
    alone = fit_alone(before, base, ridge) - base.weights
    shares = np.zeros(len(before))
    for h in horizons:
        both = held[h].squared_errors(base, h, 0.5 * (own[:, h] + alone[:, h]))
        without = held[h].squared_errors(base, h, own[:, h])
        gain = 1.0 - np.sqrt(_geometric_mean(both[judged]) / _geometric_mean(without[judged]))
        shares[h] = 0.5 if gain >= LEAST_ALONE_GAIN else 0.0
    return ridge, shares * judged[:, None]


def _finite(penalties: tuple[float, ...]) -> tuple[float | None, ...]:
    return tuple(None if np.isinf(penalty) else penalty for penalty in penalties)


def _geometric_mean(errors: Array) -> float:
    return float(np.exp(np.log(np.maximum(errors, 1e-12)).mean())) if len(errors) else np.inf


def _choose_shares(
    days: NetworkDays, past: Remembered, forecasts: HeldOutForecasts, plan: NetworkPlan
) -> tuple[Array, Judged]:
    """Choose by the held-out days, link by link, how much of what the memories say is added, or nothing."""
    n_links = len(days.series.link_ids)
    step = max(1, -(-n_links * len(forecasts.slots) // MOST_QUERIES))
    rows = np.arange(0, len(forecasts.slots), step)
    network = network_memory(past, plan)
    memories = [own_memory(past, link, plan) for link in range(n_links)]
    missed = (forecasts.came - forecasts.base)[:, rows, 0] / forecasts.scale[:, rows]
    scored = ~np.isnan(missed) & ~np.isnan(forecasts.places[:, rows]).any(axis=2)
    corrections = np.zeros((2, n_links, len(rows)))
    for link in range(n_links):
        days.report("shares", link, n_links)
        queries = forecasts.places[link, rows[scored[link]]].astype(np.float64)
        for which, memory in enumerate((memories[link], network)):
            corrections[which, link, scored[link]] = memory.estimate(queries)[:, 0]
    missed = np.where(scored, missed, 0.0)
    n = np.maximum(scored.sum(axis=1), 1)
    alone = np.maximum((missed**2).sum(axis=1) / n, 1e-12)
    tried = np.stack(
        [((missed - own * corrections[0] - other * corrections[1]) ** 2).sum(axis=1) / n for own, other in SHARES]
    )
    gains = 1.0 - np.sqrt(tried / alone)  # (n_candidates, n_links)
    means = gains[:, scored.any(axis=1)].mean(axis=1)
    usual = int(np.argmax(means))
    # What suits the links together has the benefit of the doubt; a link of its own must show more.
    least = -LEAST_GAIN if means[usual] >= LEAST_GAIN else LEAST_GAIN
    shares = np.zeros((n_links, 2))
    for link in np.flatnonzero(scored.any(axis=1)).tolist():
        best = int(np.argmax(gains[:, link]))
        if gains[usual, link] >= least:
            shares[link] = SHARES[usual]
        elif gains[best, link] >= 2.0 * LEAST_GAIN:
            shares[link] = np.array(SHARES[best]) / 2.0
    network_forecasts = forecasts.base.copy()
    for link in np.flatnonzero(shares.any(axis=1)).tolist():
        known = np.flatnonzero(~np.isnan(forecasts.places[link]).any(axis=1))
        queries = forecasts.places[link, known].astype(np.float64)
        for share, memory in zip(shares[link].tolist(), (memories[link], network), strict=True):
            if share:
                network_forecasts[link, known] += share * memory.estimate(queries) * forecasts.scale[link, known, None]
    return shares, Judged(int(forecasts.slots[0]), np.maximum(network_forecasts, 0.0), forecasts.base, forecasts.usual)


def _bands(judged: Judged, days: NetworkDays, plan: NetworkPlan) -> list[Bands | None]:
    """Learn each link's bands from its held-out errors; of a link with too few, from all links', in its own units."""
    came = counts_from(days.series, judged.first, plan.horizons)
    scales = days.profile(days.series.days).scale
    bands: list[Bands | None] = []
    for link in range(len(days.series.link_ids)):
        try:
            bands.append(Bands.learn(judged.network[link], came[link], plan.level))
        except ValueError:
            bands.append(None)
    if all(band is not None for band in bands):
        return bands
    center = days.profile(days.series.days).center
    forecasts = (judged.network - center[:, None, None]) / scales[:, None, None]
    real = (came - center[:, None, None]) / scales[:, None, None]
    common = Bands.learn(forecasts.reshape(-1, plan.horizons), real.reshape(-1, plan.horizons), plan.level)
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


def _borrowed(known: list[NetworkModel], network: Network, link: int) -> Bands | None:
    """Return a new link the bands of a link of the network, in its own units."""
    if not known:
        return None
    scale, center = float(network.profile.scale[link]), float(network.profile.center[link])
    widths = [float(np.mean(model.bands.above - model.bands.below)) / model.scale for model in known if model.bands]
    model = known[int(np.argsort(widths)[len(widths) * 3 // 4])]  # rather wide than narrow
    assert model.bands is not None
    ratio = scale / model.scale
    edges = (model.bands.edges - model.center) * ratio + center
    return Bands(
        model.bands.level,
        edges,
        model.bands.below * ratio,
        model.bands.above * ratio,
    )
