"""What a fit may use of the machine's memory, measured in a process of its own."""

import subprocess
import sys

FIT = """
import resource
import warnings
import numpy as np
from model import KR_SML

warnings.simplefilter("ignore")  # the one evaluation of a fit without steps is what is measured
rng = np.random.default_rng(0)
X, y = rng.standard_normal((50_000, 45)), rng.standard_normal(50_000)
fitted = KR_SML(n_neighbors=8, mu=1e-3, exclusion=96, max_iter=0).fit(X, y)
assert np.isfinite(fitted.objective_history_).all() and np.isfinite(fitted.predict(X[:100])).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_a_fit_of_fifty_thousand_rows_stays_far_below_two_gigabytes():
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000  # MiB; the n x n distances alone would be 19,000
