"""The network model: what all links of a network share, and the model of each link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.link_model.intervals import Bands
from model.link_model.profile import Profile
from model.link_model.trained_model import Forecasts
from model.network_model.context import ContextParts, ContextSource
from model.network_model.local_memory import LocalMemory
from model.network_model.profile import NetworkProfile, scale_of
from model.network_model.series import NetworkCalendar

Array = NDArray[np.float64]
Slots = NDArray[np.int64]

ALGORITHM = "NETWORK"


@dataclass(frozen=True)
class Base:
    """The linear base: one set of weights for all links, by horizon, on standardised columns.

    Parameters
    ----------
    mean, scale : (n_horizons, n_columns) arrays
        Mean and standard deviation of the columns in training.
    weights : (n_horizons, n_columns) array
    offset : (n_horizons,) array
        Mean deviation from the profile in training.
    """

    mean: Array
    scale: Array
    weights: Array
    offset: Array

    def scaled(self, shares: Array | float) -> Base:
        """Return the base with weights and offset multiplied by a share for each horizon."""
        part = np.broadcast_to(np.asarray(shares, dtype=np.float64), self.offset.shape)
        return Base(self.mean, self.scale, self.weights * part[:, None], self.offset * part)

    def standardised(self, columns: Array, horizon: int) -> Array:
        """Standardise columns of context for a horizon, from 1."""
        return np.asarray((columns - self.mean[horizon - 1]) / self.scale[horizon - 1])


@dataclass(frozen=True)
class Network:
    """The parts of a network model that all links share.

    Parameters
    ----------
    link_ids : tuple of str
    junction : (n_links,) array of int
        Links with the same number end at the same junction; -1 where it is unknown.
    upstream : tuple of tuple of int
        For each link the indices of the links that flow into it.
    parts : ContextParts
    profile : NetworkProfile
        As of the newest day in training.
    base : Base
    components : (rank, n_columns) array
        A of the metric, on columns standardised for horizon 1.
    memory : LocalMemory
        Rows of all links.
    holidays : str
        The region whose public holidays its calendar treats as Sundays; callers build the calendar.
    """

    link_ids: tuple[str, ...]
    junction: Slots
    upstream: tuple[tuple[int, ...], ...]
    parts: ContextParts
    profile: NetworkProfile
    base: Base
    components: Array
    memory: LocalMemory
    holidays: str = ""

    @property
    def horizons(self) -> int:
        """Number of slots ahead that it forecasts."""
        return len(self.base.weights)

    @property
    def rank(self) -> int:
        """Rank of the metric."""
        return len(self.components)

    @cached_property
    def others_at_junction(self) -> tuple[tuple[int, ...], ...]:
        """For each link the other links at its junction."""
        return others_at_junction(self.junction)

    def projected(self, standardised: Array) -> Array:
        """Project columns standardised for horizon 1 by the metric."""
        return np.asarray(standardised @ self.components.T)


def others_at_junction(junction: Slots) -> tuple[tuple[int, ...], ...]:
    """Return, for each link, the indices of the other links with the same junction."""
    indices: dict[int, list[int]] = {}
    for index, number in enumerate(junction.tolist()):
        indices.setdefault(number, []).append(index)
    return tuple(
        () if number < 0 else tuple(other for other in indices[number] if other != index)
        for index, number in enumerate(junction.tolist())
    )


@dataclass(frozen=True)
class NetworkModel:
    """The model of one link in a network.

    Parameters
    ----------
    network : Network
    link : int
        Index of the link in the network.
    own : (n_horizons, n_columns) array
        The link's additions to the base's weights; zero where its history is too short for them.
    memory : LocalMemory
        The link's own rows.
    shares : (2,) array
        Weights of the estimates from its own memory and from the network's.
    bands : Bands, optional
    """

    network: Network
    link: int
    own: Array
    memory: LocalMemory
    shares: Array
    bands: Bands | None = None

    algorithm = ALGORITHM

    @property
    def rank(self) -> int:
        """Rank of the metric."""
        return self.network.rank

    @cached_property
    def profile(self) -> Profile:
        """The link's profile."""
        return Profile(self.network.profile.expected_counts[self.link].astype(np.float64))

    @cached_property
    def center(self) -> float:
        """Mean of the link's week."""
        return float(self.network.profile.expected_counts[self.link].mean(dtype=np.float64))

    @cached_property
    def scale(self) -> float:
        """The unit of the link's counts."""
        return float(scale_of(self.network.profile.expected_counts[self.link]))

    def deviations(self, columns: Sequence[Array], *, corrected: bool = True) -> Array:
        """Return the expected deviations from the profile, in units of the scale, (m, n_horizons).

        ``columns`` holds rows of context, (m, n_columns), for each horizon.
        """
        base = self.network.base
        standardised = [base.standardised(rows, horizon) for horizon, rows in enumerate(columns, start=1)]
        deviations = np.stack(
            [rows @ (base.weights[h] + self.own[h]) + base.offset[h] for h, rows in enumerate(standardised)],
            axis=1,
        )
        if corrected and self.shares.any():
            deviations += self.correction(standardised[0])[:, : deviations.shape[1]]
        return np.asarray(deviations)

    def correction(self, standardised: Array) -> Array:
        """Return the memories' correction of the base, (m, n_horizons)."""
        queries = self.network.projected(standardised)
        out = np.zeros((len(queries), self.network.horizons))
        for share, memory in zip(self.shares.tolist(), (self.memory, self.network.memory), strict=True):
            if share:
                out += share * memory.estimate(queries)
        return out

    def expected_counts(self, columns: Sequence[Array], profile: Array, *, corrected: bool = True) -> Array:
        """Return the expected count of each horizon, (m, n_horizons); never below zero.

        ``profile`` is the standardised profile of the slots that are forecast, (m, n_horizons).
        """
        standardised = profile + self.deviations(columns, corrected=corrected)
        return np.asarray(np.maximum(standardised * self.scale + self.center, 0.0))

    def forecast(self, columns: Sequence[Array], profile: Array) -> Forecasts:
        """Return forecasts of all horizons from rows of context."""
        if self.bands is None:
            raise ValueError("the model has no bands yet; training adds them")
        expected = self.expected_counts(columns, profile)
        return Forecasts(expected, *self.bands.around(expected))


def context_source(
    network: Network,
    counts: Array,
    calendar: NetworkCalendar,
    links: Slots,
    network_deviations: dict[int, float] | None,
) -> ContextSource:
    """Return the data that rows of some of a network's links are computed from.

    ``links`` are indices in the network, and ``counts`` theirs. They must include the links at the
    junctions and upstream of those whose rows will be computed.
    """
    index = {int(link): i for i, link in enumerate(links)}
    kept = [int(link) for link in links]
    junction = network.others_at_junction

    def here(related: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[index[other] for other in related[link] if other in index] for link in kept]

    profile = NetworkProfile(
        np.asarray(network.profile.expected_counts[links], dtype=np.float64),
        np.asarray(network.profile.by_day_type[links], dtype=np.float64),
    )
    return ContextSource(
        counts, calendar, profile, here(junction), here(network.upstream), network.parts, network_deviations
    )
