"""The lag window: the past counts that a forecast is computed from, for training and serving alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

MOST_FILLED = 0.2  # share of a window's lags that may be filled when serving


class TrainingSet(NamedTuple):
    """Windows without gaps, the count that follows each, and that count's position in the series."""

    X: Array  # (n, d)
    y: Array  # (n,)
    positions: NDArray[np.int64]  # (n,)


class LatestWindow(NamedTuple):
    """The window at the end of a series, and the number of its lags that were filled."""

    window: Array  # (1, d)
    filled_lags: int


class TooManyGaps(ValueError):
    """Raised for a window with more gaps than may be filled."""


class LagWindow:
    """The past slots that a forecast is computed from.

    Parameters
    ----------
    lags : int or sequence of int, default=45
        A number means lags 1 to that number; a sequence lists them, such as ``(1, 2, 3, 96, 672)``.

    Notes
    -----
    A series has one value per consecutive slot, NaN where there is no count. A gap is never 0.
    """

    def __init__(self, lags: int | Sequence[int] = 45) -> None:
        named = range(1, lags + 1) if isinstance(lags, int) and not isinstance(lags, bool) else lags
        try:
            self.lags = tuple(int(lag) for lag in named)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            raise ValueError(f"lags={lags!r} is refused; it must be a whole number or several") from None
        if not self.lags or min(self.lags) < 1 or len(set(self.lags)) < len(self.lags):
            raise ValueError(f"lags={lags!r} is refused; lags must be distinct whole numbers of at least 1")

    def __len__(self) -> int:
        return len(self.lags)

    def __repr__(self) -> str:
        consecutive = self.lags == tuple(range(1, len(self.lags) + 1))
        return f"LagWindow(lags={len(self.lags) if consecutive else self.lags})"

    def training_set(self, series: ArrayLike) -> TrainingSet:
        """Return every window without a gap that is followed by a count.

        ``positions`` are slots, not row numbers: they are not consecutive where there are gaps.
        """
        values = _as_series(series)
        positions = np.arange(min(max(self.lags), len(values)), len(values))
        windows = self._windows(values, positions)
        complete = ~(np.isnan(windows).any(axis=1) | np.isnan(values[positions]))
        return TrainingSet(windows[complete], values[positions[complete]], positions[complete])

    def latest(
        self, series: ArrayLike, fill: ArrayLike | None = None, most_filled: float = MOST_FILLED
    ) -> LatestWindow:
        """Return the window for the slot after the end of the series.

        Parameters
        ----------
        series : (n,) array-like
        fill : (n,) array-like, optional
            Values for gaps, slot by slot, such as the link's profile.
        most_filled : float, default=0.2
            Largest share of the lags that may be filled.

        Raises
        ------
        TooManyGaps
            The series is too short, or more lags are missing than may be filled.
        """
        values = _as_series(series)
        if fill is not None:
            filling = np.asarray(fill, dtype=np.float64)
            if filling.shape != values.shape:
                raise ValueError(f"fill has shape {filling.shape}, the series {values.shape}; they must agree")
        short = max(self.lags) - len(values)
        if short > 0:
            raise TooManyGaps(f"the series has {len(values)} slots; the window reaches back {max(self.lags)}")
        end = np.array([len(values)])
        window = self._windows(values, end)
        gaps = np.isnan(window)
        n_gaps = int(gaps.sum())
        if n_gaps and (fill is None or n_gaps > most_filled * len(self.lags)):
            allowed = 0 if fill is None else int(most_filled * len(self.lags))
            raise TooManyGaps(f"{n_gaps} of {len(self.lags)} lags are missing; at most {allowed} may be filled")
        if n_gaps:
            window = np.where(gaps, self._windows(filling, end), window)
            if np.isnan(window).any():
                raise TooManyGaps(f"{int(np.isnan(window).sum())} of {len(self.lags)} lags have nothing to fill them")
        return LatestWindow(window, n_gaps)

    def _windows(self, values: Array, positions: NDArray[np.int64]) -> Array:
        return np.asarray(values[positions[:, None] - np.array(self.lags)])  # (len(positions), d)


def _as_series(series: ArrayLike) -> Array:
    values = np.asarray(series, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"a series has shape {values.shape}; it must be one-dimensional")
    if np.isinf(values).any():
        raise ValueError(f"the series holds an infinite count at slot {int(np.flatnonzero(np.isinf(values))[0])}")
    return values
