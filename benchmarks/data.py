"""The paper's regression sets and its splits of them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.support.data import MissingData

Array = NDArray[np.float64]
RowIndices = NDArray[np.intp]

DELVE_BLOCK = 1024
UCI_SPLITS = 10
UCI_SHARE = 0.7
UCI_MOST = 1500


def load_set(folder: Path, name: str) -> tuple[Array, Array]:
    """Read one regression set: inputs (n, d) and targets (n,)."""
    with gzip.open(folder / f"{name}.csv.gz", "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", skiprows=1, ndmin=2)
    return table[:, :-1], table[:, -1]


class Split(NamedTuple):
    """Row numbers to train on and to test on."""

    train: RowIndices
    test: RowIndices


def paper_splits(name: str, n: int) -> list[Split]:
    """Split a set by the paper's protocol: Delve's blocks in published order, UCI at random."""
    if name.startswith(("kin", "puma")):
        block, pairs = _delve_blocks(name, n)
        return [Split(np.arange(a * block, (a + 1) * block), np.arange(b * block, (b + 1) * block)) for a, b in pairs]
    size = min(int(UCI_SHARE * n), UCI_MOST)
    orders = [np.random.default_rng(seed).permutation(n) for seed in range(UCI_SPLITS)]
    return [Split(order[:size], order[size:]) for order in orders]


def _delve_blocks(name: str, n: int) -> tuple[int, list[tuple[int, int]]]:
    blocks = n // DELVE_BLOCK
    if blocks >= 2:
        half = min(blocks // 2, 4)
        return DELVE_BLOCK, [(b, half + b) for b in range(half)]
    if n < 2:
        raise MissingData(f"{name} has {n} rows; a split needs two")
    return n // 2, [(0, 1)]
