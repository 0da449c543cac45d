"""``flowcast worker``: how it is asked to end."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.journey

# The main thread holds the lock that ending needs, and is asked twice.
ASKED_AT_A_BAD_MOMENT = """
import os, signal, threading
from app.commands.worker import on_signals
lock, asked = threading.Lock(), []
both = threading.Event()

def end():
    with lock:
        asked.append(1)
        if len(asked) == 2:
            both.set()

on_signals(end)
with lock:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass
print(both.wait(60))
"""


def test_who_asks_a_worker_to_end_is_heard_whatever_it_does_at_the_moment():
    done = subprocess.run(
        [sys.executable, "-c", ASKED_AT_A_BAD_MOMENT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_an_idle_worker_carries_no_library_that_only_training_needs():
    heavy = ("sklearn", "scipy", "pandas", "joblib", "alembic", "dask", "distributed")
    code = f"import sys, app.commands.worker; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
