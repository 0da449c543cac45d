"""The experts of a link, and forecasts beyond their horizons.

An expert is a class with a name that returns forecasts from `ExpertInputs`. A new one goes to the end of ``EXPERTS``,
because stored weights are in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

RECENT = 4  # latest slots whose counts scale the profile
MOST_SCALED = 3.0  # times the profile; more is a fault of the detector or a very small profile
LEAST_EXPECTED = 1.0  # vehicles of the profile in the recent slots, below which their ratio is noise
HALF_LIFE = 60.0  # minutes in which an expected deviation from the profile halves beyond the last horizon


def last_count(profile: ArrayLike, latest: ArrayLike, latest_profile: ArrayLike) -> Array:
    """Return the latest count one slot ahead, and beyond that the profile shifted by the latest deviation from it.

    Where there is no profile, NaN, the latest count is repeated.

    Parameters
    ----------
    profile : (..., n_horizons) array-like
        Profile of the slots that are forecast, the nearest first.
    latest, latest_profile : (...) array-like
        Count and profile of the latest slot; NaN where there is no count.
    """
    to_come, count = np.asarray(profile, dtype=np.float64), np.asarray(latest, dtype=np.float64)
    shifted = to_come + (count - np.asarray(latest_profile))[..., None]
    shifted = np.where(np.isnan(to_come), count[..., None], shifted)
    shifted[..., 0] = count
    return np.asarray(np.maximum(shifted, 0.0))


def scaled_profile(profile: ArrayLike, recent: ArrayLike, recent_profile: ArrayLike) -> Array:
    """Return the profile scaled by the ratio of recent counts to the profile of their slots.

    The ratio is at most 3. It is 1 where the profile expects less than one vehicle in the slots that have a count.

    Parameters
    ----------
    profile : (..., n_horizons) array-like
    recent, recent_profile : (..., n_recent) array-like
        Counts of the latest slots, NaN where there is none, and the profile of these slots.
    """
    counts, expected = np.asarray(recent, dtype=np.float64), np.asarray(recent_profile, dtype=np.float64)
    known = ~np.isnan(counts)
    passed, usual = np.sum(counts, axis=-1, where=known), np.sum(expected, axis=-1, where=known)
    enough = usual >= LEAST_EXPECTED
    ratio = np.where(enough, np.clip(passed / np.where(enough, usual, 1.0), 0.0, MOST_SCALED), 1.0)
    return np.asarray(np.asarray(profile) * ratio[..., None])


@dataclass(frozen=True)
class ExpertInputs:
    """What experts forecast from; leading axes are links, slots and so on.

    Parameters
    ----------
    profile : (..., n_horizons) array
        The link's profile of the slots that are forecast, NaN where it has none.
    recent, recent_profile : (..., n_recent) array
        Counts of the latest slots, NaN where there is none, and the profile of these slots.
    models : mapping of str to (..., n_horizons) array
        Forecasts of trained models by algorithm, NaN where there is none.
    """

    profile: Array
    recent: Array
    recent_profile: Array
    models: Mapping[str, Array] = field(default_factory=dict)


class Expert(Protocol):
    """A forecaster whose forecasts are aggregated."""

    @property
    def name(self) -> str:
        """The name under which it is shown."""

    def forecast(self, inputs: ExpertInputs) -> Array:
        """Return the expected counts, (..., n_horizons), NaN where there is no forecast."""


@dataclass(frozen=True)
class ModelExpert:
    """A trained model, by its algorithm."""

    name: str

    def forecast(self, inputs: ExpertInputs) -> Array:
        """Return the forecasts of the model."""
        missing = np.full_like(inputs.profile, np.nan)
        return inputs.models.get(self.name, missing)


class ProfileExpert:
    """The link's profile."""

    name = "profile"

    def forecast(self, inputs: ExpertInputs) -> Array:
        """Return the profile."""
        return inputs.profile


class LastCountExpert:
    """The link's last count."""

    name = "last_count"

    def forecast(self, inputs: ExpertInputs) -> Array:
        """Return what `last_count` does."""
        return last_count(inputs.profile, inputs.recent[..., -1], inputs.recent_profile[..., -1])


class ScaledProfileExpert:
    """The profile scaled by the last hour."""

    name = "scaled_profile"

    def forecast(self, inputs: ExpertInputs) -> Array:
        """Return what `scaled_profile` does."""
        return scaled_profile(inputs.profile, inputs.recent, inputs.recent_profile)


EXPERTS: tuple[Expert, ...] = (
    ModelExpert("NETWORK"),
    ModelExpert("KR_SML"),
    ProfileExpert(),
    LastCountExpert(),
    ScaledProfileExpert(),
)
EXPERT_NAMES = tuple(expert.name for expert in EXPERTS)
TRAINED_EXPERTS = tuple(expert.name for expert in EXPERTS if isinstance(expert, ModelExpert))


def forecast_experts(inputs: ExpertInputs) -> Array:
    """Return the forecasts of all experts, (..., n_horizons, n_experts)."""
    return np.stack([expert.forecast(inputs) for expert in EXPERTS], axis=-1)


def faded(expected: ArrayLike, profile: ArrayLike, n_slots: int, slot_minutes: float) -> Array:
    """Return forecasts beyond the last horizon: the deviation from the profile fades, and halves in an hour.

    It is the mean deviation of all horizons, because much of that of a single slot does not last.

    Parameters
    ----------
    expected : (..., n_horizons) array-like
        Forecasts of the nearest slots, which are returned as they are.
    profile : (..., n_slots) array-like
        Profile of all slots, the nearest first.
    n_slots : int
    slot_minutes : float

    Returns
    -------
    (..., n_slots) array
    """
    near, usual = np.asarray(expected, dtype=np.float64)[..., :n_slots], np.asarray(profile, dtype=np.float64)
    last = near.shape[-1]
    beyond = np.arange(1, n_slots - last + 1)
    shares = 0.5 ** (beyond * slot_minutes / HALF_LIFE)
    deviation = np.mean(near - usual[..., :last], axis=-1)
    far = np.maximum(usual[..., last:n_slots] + deviation[..., None] * shares, 0.0)
    return np.concatenate([near, far], axis=-1)
