import threading

import pytest

from app.training.abandoned import Abandoned, ended_when_abandoned
from tests.support.waiting import WAIT_SECONDS


def work_for_ever(begun: threading.Event) -> None:
    with ended_when_abandoned(lambda: not begun.is_set()):
        begun.set()
        while True:
            sum(range(1000))


def test_work_that_nobody_wants_ends_where_it_is():
    with pytest.raises(Abandoned):
        work_for_ever(threading.Event())


def test_work_that_is_wanted_comes_to_its_end_and_what_follows_is_left_alone(monkeypatch):
    monkeypatch.setattr("app.training.abandoned.LOOK_SECONDS", 0.01)
    wanted, asked = True, threading.Event()

    def look() -> bool:
        asked.set()
        return wanted

    with ended_when_abandoned(look):
        assert asked.wait(WAIT_SECONDS)
    wanted = False
    asked.clear()
    assert not asked.wait(0.2)  # nobody looks any more
