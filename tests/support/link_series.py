"""The counts of a synthetic link, and parameters that train it quickly."""

import numpy as np

from model.link_model.series import CountSeries

SLOTS = 96
QUICK = {"n_neighbors": 8, "lags": 12, "max_iter": 4, "held_out_days": 4, "mu": (1e-3,)}


def link(days: int = 18, seed: int = 0) -> CountSeries:
    """Return counts with two peaks a day, weekends, variation between days and Poisson noise."""
    rng = np.random.default_rng(seed)
    slots = np.arange(days * SLOTS)
    hour = slots % SLOTS / 4
    weekday = slots // SLOTS % 7
    shape = 20 + 160 * np.exp(-(((hour - 8) / 1.5) ** 2)) + 190 * np.exp(-(((hour - 17.5) / 2) ** 2))
    shape = np.where(weekday >= 5, 20 + 110 * np.exp(-(((hour - 14) / 4) ** 2)), shape)
    swing = np.repeat(rng.normal(1, 0.12, days), SLOTS)
    return CountSeries(rng.poisson(shape * swing).astype(float), weekday, slots % SLOTS, SLOTS)
