"""What a fit may use of the machine's memory, measured in a process of its own."""

import subprocess
import sys

FIT = """
import resource
import numpy as np
from model.kernel import Barred, Neighborhood, leave_one_out_loss

n, d = 50_000, 45
rng = np.random.default_rng(0)
X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
barred = Barred(np.arange(n), np.arange(n), 96)
value, gradient = leave_one_out_loss(np.eye(d)[:6], X, y, Neighborhood(8, 1.0, 96), barred)
assert np.isfinite(value) and np.isfinite(gradient).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_one_evaluation_at_fifty_thousand_rows_stays_far_below_two_gigabytes():
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000  # MiB; the n x n distances alone would be 19,000
