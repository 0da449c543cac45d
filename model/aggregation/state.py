"""The state of the aggregation of a link: regrets, interval factors, and forecasts whose counts are still to come.

A state goes from slot to slot: `Aggregation.after` learns from the count of the next slot, and `Aggregation.forecast`
adds what the experts expect after it. A forecast at horizon h is learnt from h slots later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.aggregation.experts import EXPERT_NAMES
from model.aggregation.intervals import LEVELS, IntervalFactors
from model.aggregation.online import Aggregate, Regrets
from model.link_model.intervals import Bands, intervals_of

Array = NDArray[np.float64]

N_HORIZONS = 4  # of the forecasts that are learnt from


class Offsets(NamedTuple):
    """How far the bands reach below and above the aggregate, (..., n_horizons) each, NaN where there is no band."""

    below: Array
    above: Array


@dataclass(frozen=True)
class Aggregation:
    """The state; leading axes are links.

    Parameters
    ----------
    regrets : Regrets, (..., n_horizons, n_experts)
    factors : IntervalFactors, (..., n_horizons, 2, n_levels)
    experts : (..., n_horizons, n_horizons, n_experts) array
        Forecasts of the experts by their age in slots, 0 for the latest, and by horizon; NaN where there is none.
    expected, below, above : (..., n_horizons, n_horizons) arrays
        Forecasts of the aggregate, and how far the bands reach below and above them, also by age and horizon.
    """

    regrets: Regrets
    factors: IntervalFactors
    experts: Array
    expected: Array
    below: Array
    above: Array

    @classmethod
    def start(cls, *shape: int, n_horizons: int = N_HORIZONS, n_experts: int = len(EXPERT_NAMES)) -> Aggregation:
        """Return the state before the first forecast."""
        return cls._without_forecasts(
            Regrets.none(*shape, n_horizons, n_experts), IntervalFactors.start(*shape, n_horizons)
        )

    @classmethod
    def _without_forecasts(cls, regrets: Regrets, factors: IntervalFactors) -> Aggregation:
        *shape, n_horizons, n_experts = regrets.cumulated.shape
        nothing = np.full((*shape, n_horizons, n_horizons), np.nan)
        experts = np.full((*nothing.shape, n_experts), np.nan)
        return cls(regrets, factors, experts, nothing, nothing, nothing)

    def without_forecasts(self) -> Aggregation:
        """Return the state with regrets and factors alone."""
        return self._without_forecasts(self.regrets, self.factors)

    @property
    def has_forecast(self) -> NDArray[np.bool_]:
        """Whether there is a forecast from the latest slot, (...)."""
        return np.asarray(~np.isnan(self.expected[..., 0, 0]))

    def after(self, counts: ArrayLike) -> Aggregation:
        """Return the state after the counts of the next slot, (...), NaN where there is none."""
        actual, h = np.asarray(counts, dtype=np.float64)[..., None], np.arange(self.expected.shape[-1])
        # A forecast at horizon h + 1 of the next slot is h slots old.
        expected, below, above = self.expected[..., h, h], self.below[..., h, h], self.above[..., h, h]
        return Aggregation(
            self.regrets.after(self.experts[..., h, h, :], actual),
            self.factors.after(np.where(np.isnan(below), np.nan, expected), below, above, actual),
            _older(self.experts, axis=-3),
            _older(self.expected, axis=-2),
            _older(self.below, axis=-2),
            _older(self.above, axis=-2),
        )

    def forecast(self, experts: Array, bands: Sequence[Bands | None]) -> tuple[Aggregation, Aggregate, Offsets]:
        """Aggregate the experts' forecasts from the latest slot; return the state that has them, too.

        Parameters
        ----------
        experts : (n_links, n_horizons, n_experts) array
            NaN where there is no forecast.
        bands : sequence of Bands
            Of each link; None where it has none, so that its forecasts have no interval.
        """
        aggregate = self.regrets.aggregate(experts)
        offsets = _offsets(aggregate.expected, bands)
        state = replace(
            self,
            experts=_with_latest(self.experts, experts, axis=-3),
            expected=_with_latest(self.expected, aggregate.expected, axis=-2),
            below=_with_latest(self.below, offsets.below, axis=-2),
            above=_with_latest(self.above, offsets.above, axis=-2),
        )
        return state, aggregate, offsets

    def without_latest(self) -> Aggregation:
        """Return the state without the forecasts from the latest slot, which other models will make again."""
        nothing = np.full(self.expected.shape[:-2] + self.expected.shape[-1:], np.nan)
        return replace(
            self,
            experts=_with_latest(self.experts, np.repeat(nothing[..., None], self.experts.shape[-1], -1), axis=-3),
            expected=_with_latest(self.expected, nothing, axis=-2),
            below=_with_latest(self.below, nothing, axis=-2),
            above=_with_latest(self.above, nothing, axis=-2),
        )

    def rows(self, rows: Any) -> Aggregation:
        """Return the states of some of the links."""
        return Aggregation(
            Regrets(self.regrets.cumulated[rows], self.regrets.squares[rows], self.regrets.largest[rows]),
            IntervalFactors(self.factors.factors[rows]),
            self.experts[rows],
            self.expected[rows],
            self.below[rows],
            self.above[rows],
        )

    def as_json(self) -> dict[str, Any]:
        """Return regrets and factors of one link as they are kept with a trained model; forecasts are left out."""
        return {
            "experts": list(EXPERT_NAMES),
            "levels": list(LEVELS),
            **{name: getattr(self.regrets, name).tolist() for name in ("cumulated", "squares", "largest")},
            "factors": self.factors.factors.tolist(),
        }

    @classmethod
    def from_json(cls, described: Any) -> Aggregation:
        """Return what `as_json` described; raise ``ValueError`` where it is not that of one link."""
        try:
            names = [*described["experts"]]
            arrays = [np.array(described[name], dtype=np.float64) for name in ("cumulated", "squares", "largest")]
            factors = np.array(described["factors"], dtype=np.float64)
            same_levels = described["levels"] == list(LEVELS)
        except (KeyError, TypeError, ValueError):
            raise ValueError("the weights of experts are not as training writes them") from None
        is_whole = all(array.shape == (N_HORIZONS, len(names)) and np.isfinite(array).all() for array in arrays)
        if not (is_whole and same_levels and factors.shape == (N_HORIZONS, 2, len(LEVELS)) and factors.min() > 0.0):
            raise ValueError("the weights of experts are not as training writes them")
        known = [name for name in EXPERT_NAMES if name in names]
        filled = [np.zeros((N_HORIZONS, len(EXPERT_NAMES))) for _ in arrays]
        for new, old in zip(filled, arrays, strict=True):
            for name in known:
                new[:, EXPERT_NAMES.index(name)] = old[:, names.index(name)]
        return cls._without_forecasts(Regrets(*filled), IntervalFactors(factors))


class Replay(NamedTuple):
    """The aggregate's forecasts slot by slot, and the state after the last count.

    Parameters
    ----------
    expected, below, above : (n_links, n_slots, n_horizons) arrays
    weights : (n_links, n_slots, n_horizons, n_experts) array
    factors : IntervalFactors, (n_links, n_slots, n_horizons, 2, n_levels)
        Those with which each forecast was issued.
    """

    state: Aggregation
    expected: Array
    below: Array
    above: Array
    weights: Array
    factors: IntervalFactors


def replay(experts: Array, counts: Array, bands: Sequence[Bands | None], start: Aggregation | None = None) -> Replay:
    """Aggregate experts' forecasts slot by slot, each from the counts before it.

    Parameters
    ----------
    experts : (n_links, n_slots, n_horizons, n_experts) array
        The first horizon of a slot is the slot itself; NaN where there is no forecast.
    counts : (n_links, n_slots) array
        NaN where there is no count.
    bands : sequence of Bands
        Of each link.
    start : Aggregation, (n_links, ...), optional
        The state before the first slot; by default that before the first forecast.
    """
    n_links, n_slots, n_horizons, n_experts = experts.shape
    expected, below, above = (np.empty((n_links, n_slots, n_horizons)) for _ in range(3))
    weights, factors = np.empty(experts.shape), np.empty((n_links, n_slots, n_horizons, 2, len(LEVELS)))
    state = start or Aggregation.start(n_links, n_horizons=n_horizons, n_experts=n_experts)
    for slot in range(n_slots):
        factors[:, slot] = state.factors.factors
        state, aggregate, offsets = state.forecast(experts[:, slot], bands)
        expected[:, slot], weights[:, slot] = aggregate
        below[:, slot], above[:, slot] = offsets
        state = state.after(counts[:, slot])
    return Replay(state, expected, below, above, weights, IntervalFactors(factors))


def _record(n_experts: int) -> np.dtype[Any]:
    h = N_HORIZONS
    regrets = [(name, "<f8", (h, n_experts)) for name in ("cumulated", "squares", "largest")]
    forecasts = [(name, "<f8", (h, h)) for name in ("expected", "below", "above")]
    return np.dtype(
        [*regrets, ("factors", "<f8", (h, 2, len(LEVELS))), ("experts", "<f8", (h, h, n_experts)), *forecasts]
    )


def pack(states: Aggregation) -> list[bytes]:
    """Return the states of links, (n_links, ...), as they are stored."""
    records = np.empty(len(states.expected), _record(states.experts.shape[-1]))
    for name in ("cumulated", "squares", "largest"):
        records[name] = getattr(states.regrets, name)
    records["factors"] = states.factors.factors
    for name in ("experts", "expected", "below", "above"):
        records[name] = getattr(states, name)
    return [record.tobytes() for record in records]


def unpack(stored: Sequence[bytes]) -> Aggregation:
    """Return the stored states of links, (n_links, ...); experts that are new since have no regret yet.

    A state of another layout is replaced by that before the first forecast.
    """
    n_experts, records = len(EXPERT_NAMES), []
    for state in stored:
        found = next((n for n in range(n_experts, 0, -1) if _record(n).itemsize == len(state)), None)
        if found == n_experts:
            records.append(state)
            continue
        new = np.frombuffer(pack(Aggregation.start(1))[0], _record(n_experts)).copy()
        if found is not None:
            old = np.frombuffer(state, _record(found))
            for name in _record(found).names or ():
                part = (..., slice(found)) if name in ("cumulated", "squares", "largest", "experts") else ...
                new[name][part] = old[name]
        records.append(new.tobytes())
    of_all = np.frombuffer(b"".join(records), _record(n_experts))
    return Aggregation(
        Regrets(of_all["cumulated"], of_all["squares"], of_all["largest"]),
        IntervalFactors(of_all["factors"]),
        *(of_all[name] for name in ("experts", "expected", "below", "above")),
    )


def _offsets(expected: Array, bands: Sequence[Bands | None]) -> Offsets:
    below, above = np.full(expected.shape, np.nan), np.full(expected.shape, np.nan)
    known = [row for row, of_row in enumerate(bands) if of_row is not None]
    if known:
        lower, upper = intervals_of([bands[row] for row in known], expected[known])
        below[known], above[known] = expected[known] - lower, upper - expected[known]
    return Offsets(below, above)


def _older(forecasts: Array, axis: int) -> Array:
    """Return forecasts by age, each a slot older; there is none from the latest slot."""
    older = np.empty_like(forecasts)
    by_age, before = np.swapaxes(older, 0, axis), np.swapaxes(forecasts, 0, axis)
    by_age[0], by_age[1:] = np.nan, before[:-1]
    return older


def _with_latest(forecasts: Array, latest: Array, axis: int) -> Array:
    out = forecasts.copy()
    np.moveaxis(out, axis, 0)[0] = latest
    return out
