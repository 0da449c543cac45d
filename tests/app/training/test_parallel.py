"""Calls in local processes."""

import threading
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import joblib
import pytest
from joblib.externals.loky import get_reusable_executor

from app.training.parallel import processes_killed_when, run_parallel
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.journey


def touch_and_block(file: Path) -> None:
    file.touch()
    threading.Event().wait(WAIT_SECONDS)


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    get_reusable_executor().shutdown(wait=True, kill_workers=True)


def test_processes_are_killed_under_way_and_the_next_call_gets_new_ones(tmp_path):
    begun = tmp_path / "begun"
    with processes_killed_when(begun.exists), pytest.raises(BrokenProcessPool):
        list(run_parallel([joblib.delayed(touch_and_block)(begun)], jobs=2))
    assert sorted(run_parallel((joblib.delayed(abs)(-number) for number in range(5)), jobs=2)) == [0, 1, 2, 3, 4]
