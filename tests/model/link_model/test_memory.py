"""The memory that a fit uses, measured in a separate process."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.journey

FIT = r"""
import re
import warnings
from pathlib import Path
import numpy as np
from model import KR_SML
warnings.simplefilter("ignore")  # the one evaluation of a fit without steps is what is measured
rng = np.random.default_rng(0)
X, y = rng.standard_normal((8_000, 12)), rng.standard_normal(8_000)
fitted = KR_SML(n_neighbors=8, mu=1e-3, exclusion=96, max_iter=0).fit(X, y)
assert np.isfinite(fitted.objective_history_).all() and np.isfinite(fitted.predict(X[:100])).all()
# The highest since this program began: that of getrusage begins with what the parent had.
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def test_a_fit_never_holds_all_distances_at_once():
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300  # MiB, half of them imports; the n x n distances alone would be 490
