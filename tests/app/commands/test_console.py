"""Lines that show that a command is alive."""

from app.commands.console import StatusLines


def test_what_is_under_way_is_printed_when_five_seconds_passed_in_silence(capsys):
    now = [100.0]
    lines = StatusLines(clock=lambda: now[0])
    now[0] += 60
    lines.print_if_due()  # nothing is under way yet
    lines.begin("storing 12 links")
    lines.print_if_due()
    now[0] += 5
    lines.print_if_due()
    lines.print_if_due()
    lines.begin("training")
    lines.update("training: 3 of 12 models")
    now[0] += 3
    lines.print_if_due()
    now[0] += 2
    lines.print_if_due()
    assert capsys.readouterr().err.splitlines() == [
        "storing 12 links",
        "storing 12 links (5 s)",
        "training",
        "training: 3 of 12 models (5 s)",
    ]
