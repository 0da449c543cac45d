import pytest

from app.training.compare import decide, decide_refreshed, summary


def figures(**errors):
    return {method: {"rmse": {"value": value, "n_used": 10}} for method, value in errors.items()}


@pytest.mark.parametrize(
    ("errors", "activated", "reason"),
    [
        ({"candidate": 9.0, "active": 10.0, "profile": 10.0}, True, "more than 1.0%"),
        ({"candidate": 9.95, "active": 10.0, "profile": 12.0}, False, "the active model"),
        ({"candidate": 9.0, "active": 12.0, "profile": 9.05}, False, "the profile"),
        ({"candidate": 9.0, "profile": 10.0}, True, "the profile"),
        ({"candidate": 9.0, "active": None, "profile": None}, True, ""),
        ({"candidate": None, "profile": 1.0}, False, "no held-out slot"),
        ({"candidate": 9.9, "active": 10.0, "profile": 10.0}, False, "9.9"),  # exactly the margin is not below it
    ],
)
def test_if_better_needs_both_beaten_by_the_margin(errors, activated, reason):
    decision = decide(figures(**errors), "if_better", 0.01)
    assert decision.activate is activated
    assert reason in decision.reason


def test_the_profile_wins_where_it_alone_is_not_beaten():
    assert decide(figures(candidate=9.0, profile=9.0), "if_better", 0.01).profile_won
    assert not decide(figures(candidate=8.0, profile=9.0), "if_better", 0.01).profile_won
    assert not decide(figures(candidate=9.0, active=9.0, profile=9.0), "if_better", 0.01).profile_won
    assert not decide(figures(candidate=9.0, profile=1.0), "never", 0.01).profile_won


def test_only_an_active_model_that_exists_can_be_unmeasured():
    first = decide(figures(candidate=9.0, profile=10.0), "if_better", 0.01)
    assert first.reason == "RMSE 9 is more than 1.0% below the profile (10) on the held-out days"
    damaged = decide(figures(candidate=9.0, profile=10.0), "if_better", 0.01, served=True)
    assert damaged.reason == f"{first.reason}; the active model could not be measured"


def test_always_and_never_do_not_look():
    worse = figures(candidate=99.0, active=1.0, profile=1.0)
    assert decide(worse, "always", 0.01).activate
    assert not decide(figures(candidate=1.0, active=9.0, profile=9.0), "never", 0.01).activate


def test_a_link_too_young_to_be_measured_gets_its_networks_model():
    assert decide(figures(candidate=None, profile=None), "if_better", 0.01, young=True).activate
    assert not decide(figures(candidate=None, profile=None, active=3.0), "if_better", 0.01, young=True).activate
    assert not decide(figures(candidate=9.0, profile=5.0), "if_better", 0.01, young=True).activate


def test_what_counts_joined_is_activated_unless_nothing_is_to_be():
    about = {"trained_to": "2025-09-16T22:00:00+00:00"}
    activated, reason, _ = decide_refreshed(about, "if_better")
    assert activated
    assert reason == "refreshed: counts up to 2025-09-16T22:00:00+00:00 joined the memory"
    assert not decide_refreshed(about, "never").activate


def test_a_summary_is_plain_numbers():
    assert summary(figures(candidate=1.0, KR=None)) == {"candidate": {"rmse": 1.0}, "KR": {"rmse": None}}
