"""Runs whose heartbeat does not change."""

from app.training.queries import LOST_SECONDS
from app.worker.worker import SilentRuns


def test_a_run_is_silent_when_its_heartbeat_does_not_change():
    silent = SilentRuns()
    ahead = ("a worker", "an hour from now")
    assert silent.find({1: ahead, 2: "first"}, 100.0) == []
    assert silent.find({1: ahead, 2: "second"}, 100.0 + LOST_SECONDS / 2) == []
    assert silent.find({1: ahead, 2: "second"}, 100.1 + LOST_SECONDS) == [1]
    assert silent.find({1: ahead, 2: "second"}, 100.1 + LOST_SECONDS * 1.5) == [1, 2]


def test_a_run_that_another_worker_claimed_is_not_silent():
    silent = SilentRuns()
    silent.find({1: "a"}, 0.0)
    assert silent.find({1: "b"}, LOST_SECONDS + 1) == []
    assert silent.find({}, LOST_SECONDS + 2) == []
    assert silent.find({1: "b"}, LOST_SECONDS + 3) == []
