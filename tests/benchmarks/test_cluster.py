import sys

import pytest

from benchmarks.cluster import main, show


def test_shows_both_times_and_their_ratio(capsys):
    show({"links": 100, "days": 25, "workers": 2, "local_seconds": 40.0, "cluster_seconds": 44.0, "ratio": 1.1})
    out = capsys.readouterr().out
    assert "100 links of the sample city, 25 days" in out
    assert all(figure in out for figure in ("40.0 s", "44.0 s", "1.10", "1.25"))


@pytest.mark.parametrize(("option", "value"), [("links", "0"), ("days", "13")])
def test_too_small_a_city_is_refused_by_name(option, value, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cluster", f"--{option}", value])
    with pytest.raises(SystemExit):
        main()
    assert f"--{option}={value} is refused; it must be at least" in capsys.readouterr().err
