"""``flowcast worker``: the modules that it loads and the signals that end it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.journey

HEAVY = ("sklearn", "scipy", "pandas", "joblib", "alembic", "dask", "distributed")
# The main thread holds the lock that ending needs, and is asked twice.
ASKED_AT_A_BAD_MOMENT = f"""
import os, signal, sys, threading
from app.commands.worker import on_signals
print([module for module in {HEAVY!r} if module in sys.modules])
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


@pytest.fixture(scope="module")
def printed() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", ASKED_AT_A_BAD_MOMENT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_signal_ends_a_worker_whatever_its_main_thread_does(printed):
    assert printed[1] == "True"


def test_an_idle_worker_carries_no_library_that_only_training_needs(printed):
    assert printed[0] == "[]"
