"""Figures of a set of slots, from what was expected and what came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.accuracy.queries import Pairs
from model import error_measures as measures

Array = NDArray[np.float64]
Keys = NDArray[np.int64]
HOURLY = 60.0  # GEH is computed on hourly flows


def figures(
    pairs: Pairs, slot_minutes: int | NDArray[np.int64], floor: int, *, slots: int, counts: int
) -> dict[str, Any]:
    """Give all figures over ``slots`` slots, of which ``counts`` have a count, and rows with a forecast are scored."""
    actual, expected = pairs.count, pairs.expected
    per_hour = HOURLY / slot_minutes
    flows = actual * per_hour, np.maximum(expected, 0.0) * per_hour
    share = measures.geh_pass_share(*flows, slot_minutes=HOURLY)
    rmse, mare = measures.rmse(actual, expected), measures.mare(actual, expected, floor)
    return {
        "rmse": rmse.value,
        "mare": mare.value,
        "mae": measures.mae(actual, expected).value,
        "bias": measures.bias(actual, expected).value,
        "wape": measures.wape(actual, expected).value,
        "geh_mean": float(np.nanmean(measures.geh(*flows, slot_minutes=HOURLY))) if share.n_used else None,
        "geh_pass_share": share.value,
        "passes_geh": measures.passes_geh(share),
        "coverage": measures.coverage(actual, pairs.lower, pairs.upper).value,
        "skill_profile": measures.skill(actual, expected, pairs.usual).value,
        "n_used": rmse.n_used,
        "n_below_floor": mare.n_below_floor,
        "n_missing": slots - counts,
        "slots_without_forecast": counts - rmse.n_used,
    }


def groups(keys: Keys) -> Iterator[tuple[int, Keys]]:
    """Give each key with the numbers of its rows, in the order of keys."""
    order = np.argsort(keys, kind="stable")
    found, begins = np.unique(keys[order], return_index=True)
    if len(found):
        yield from zip(found.tolist(), np.split(order, begins[1:]), strict=True)
