"""Who is heard of, and who is not."""

from app.training.heartbeat import LOST_SECONDS, Silence


def test_a_run_is_silent_when_its_heartbeat_stands_still():
    silence = Silence()
    ahead = ("a worker", "an hour from now")
    assert silence.silent({1: ahead, 2: "first"}, 100.0) == []
    assert silence.silent({1: ahead, 2: "second"}, 100.0 + LOST_SECONDS / 2) == []
    assert silence.silent({1: ahead, 2: "second"}, 100.1 + LOST_SECONDS) == [1]
    assert silence.silent({1: ahead, 2: "second"}, 100.1 + LOST_SECONDS * 1.5) == [1, 2]


def test_a_run_that_was_given_to_another_is_heard_anew():
    silence = Silence()
    silence.silent({1: "a"}, 0.0)
    assert silence.silent({1: "b"}, LOST_SECONDS + 1) == []
    assert silence.silent({}, LOST_SECONDS + 2) == []
    assert silence.silent({1: "b"}, LOST_SECONDS + 3) == []
