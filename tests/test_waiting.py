"""The helper that tests wait with."""

import pytest

from tests.support.virtual_time import SteppedTime
from tests.support.waiting import WAIT_SECONDS, wait_until


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    stepped = SteppedTime()
    monkeypatch.setattr("tests.support.waiting.time", stepped)
    return stepped


def test_the_first_true_value_is_returned_as_soon_as_it_is_there(clock):
    values = iter([None, 0, "", "now", "later"])
    began = clock.now
    assert wait_until(lambda: next(values)) == "now"
    assert clock.now < began + 1


def test_after_the_deadline_last_value_and_explanation_are_shown(clock):
    began = clock.now
    with pytest.raises(AssertionError, match=r"not within 60 s; the last value was \[\]. the log"):
        wait_until(list, explain=lambda: "the log")
    assert clock.now >= began + WAIT_SECONDS


def test_a_condition_that_raises_ends_the_wait(clock):
    began = clock.now
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0)
    assert clock.now == began
