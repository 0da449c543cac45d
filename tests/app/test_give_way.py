"""Threads that compute, and whom they let have a turn."""

import threading

import pytest

from app import give_way as turns
from tests.support.virtual_time import SteppedTime


@pytest.fixture
def pauses(monkeypatch):
    """The threads that paused, in turn; each pause is a real one."""
    seen, real = [], turns.sleep

    def noted(seconds: float) -> None:
        seen.append(threading.current_thread())
        real(seconds)

    monkeypatch.setattr(turns, "sleep", noted)
    return seen


def in_a_thread(work) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return thread


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    stepped = SteppedTime()
    monkeypatch.setattr(turns, "perf_counter", stepped.monotonic)
    return stepped


def test_a_thread_pauses_after_each_turn_and_not_within_one(pauses, clock):
    def work() -> None:
        turns.give_way()  # the first turn begins here
        pauses.clear()
        for _ in range(100):
            turns.give_way()
        assert pauses == []
        for _ in range(3):
            clock.now += turns.TURN_SECONDS
            turns.give_way()

    thread = in_a_thread(work)
    assert pauses == [thread] * 3


def test_the_main_thread_waits_for_nobody(pauses, clock):
    assert threading.current_thread() is threading.main_thread()
    for _ in turns.in_turns(range(3)):
        clock.now += 2 * turns.TURN_SECONDS
    assert pauses == []


def test_items_come_in_order_and_all_of_them(pauses, monkeypatch):
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    found = []
    in_a_thread(lambda: found.extend(turns.in_turns(iter("abc"))))
    assert found == ["a", "b", "c"]
    assert len(pauses) == 3
