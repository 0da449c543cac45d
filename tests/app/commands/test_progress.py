"""Lines that show that a command is alive."""

from app.commands.progress import Heartbeat


def test_what_is_under_way_is_printed_when_five_seconds_passed_in_silence(capsys):
    now = [100.0]
    heart = Heartbeat(clock=lambda: now[0])
    now[0] += 60
    heart.beat()  # nothing is under way yet
    heart.begin("storing 12 links")
    heart.beat()
    now[0] += 5
    heart.beat()
    heart.beat()
    heart.begin("training")
    heart.update("training: 3 of 12 models")
    now[0] += 3
    heart.beat()
    now[0] += 2
    heart.beat()
    assert capsys.readouterr().err.splitlines() == [
        "storing 12 links",
        "storing 12 links (5 s)",
        "training",
        "training: 3 of 12 models (5 s)",
    ]
