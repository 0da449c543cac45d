"""Fixtures shared by all tests."""

import os
from pathlib import Path

import numpy as np
import pytest

# scikit-learn's conformance suite skips its array-API checks unless SciPy was imported with this set.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

from benchmarks.data import MissingData, data_directory, running_in_ci


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20021225)


def data_or_skip(name: str) -> Path:
    """A folder of data that is no part of the project; absent, a test skips on a laptop and fails in CI."""
    try:
        return data_directory(name)
    except MissingData as absent:
        if running_in_ci():
            pytest.fail(str(absent))
        pytest.skip(str(absent))


@pytest.fixture(scope="session")
def regression_data() -> Path:
    """The folder with the paper's regression sets."""
    return data_or_skip("regression")


@pytest.fixture(scope="session")
def real_file() -> Path:
    """Real counts: the SCATS survey file."""
    return data_or_skip("traffic") / "scats_2006-10.csv.gz"
