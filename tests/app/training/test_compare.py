import pytest

from app.training.compare import (
    BEFORE,
    ENSEMBLE,
    aggregate_name,
    best_without_candidates,
    decide,
    decide_experts,
    decide_refreshed,
    summary,
)

BOTH = ("NETWORK", "KR_SML")


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
    activated, reason = decide_refreshed(about, "if_better")
    assert activated
    assert reason == "refreshed: counts up to 2025-09-16T22:00:00+00:00 joined the memory"
    assert not decide_refreshed(about, "never").activate


def test_a_summary_is_plain_numbers():
    assert summary(figures(candidate=1.0, KR=None)) == {"candidate": {"rmse": 1.0}, "KR": {"rmse": None}}


def aggregates(before, network, kr_sml, both, **others):
    errors = {BEFORE: before, "ENSEMBLE with NETWORK": network, "ENSEMBLE with KR_SML": kr_sml, ENSEMBLE: both}
    return figures(**errors, **others)


def activated(held_out, mode="if_better", **options):
    decisions = decide_experts(held_out, BOTH, mode, 0.01, **options)
    assert set(decisions) == set(BOTH)
    return {algorithm for algorithm, decision in decisions.items() if decision.activate}


class TestExperts:
    def test_each_must_make_the_aggregate_better_by_the_margin(self):
        assert activated(aggregates(10.0, 9.0, 9.5, 8.0)) == set(BOTH)
        assert activated(aggregates(10.0, 9.0, 9.5, 8.95)) == {"NETWORK"}
        assert activated(aggregates(10.0, 9.5, 9.0, 8.95)) == {"KR_SML"}
        assert activated(aggregates(10.0, 9.95, 9.95, 9.0)) == set()  # neither by itself
        assert activated(aggregates(10.0, 9.9, 9.9, 9.9)) == set()  # exactly the margin is not below it

    def test_the_reason_names_the_aggregates_that_were_compared(self):
        decisions = decide_experts(aggregates(10.0, 9.0, 9.5, 8.95), BOTH, "if_better", 0.01)
        assert decisions["NETWORK"].reason == (
            "RMSE 9 of the aggregate with NETWORK is more than 1.0% below 10 without NETWORK, on the held-out days"
        )
        assert decisions["KR_SML"].reason == (
            "RMSE 8.95 of the aggregate with NETWORK and KR_SML is not 1.0% below 9 without KR_SML, "
            "on the held-out days"
        )

    def test_one_candidate_is_compared_with_the_aggregate_without_it(self):
        held_out = figures(**{BEFORE: 10.0, ENSEMBLE: 9.0})
        assert decide_experts(held_out, ["NETWORK"], "if_better", 0.01)["NETWORK"].activate
        assert not decide_experts(held_out, ["NETWORK"], "if_better", 0.2)["NETWORK"].activate

    def test_always_and_never_do_not_look(self):
        worse = aggregates(1.0, 9.0, 9.0, 9.0)
        assert activated(worse, "always") == set(BOTH)
        assert activated(aggregates(9.0, 1.0, 1.0, 1.0), "never") == set()

    def test_a_link_too_young_to_be_measured_gets_its_networks_model(self):
        unknown = figures(**{BEFORE: None, ENSEMBLE: None})
        assert decide_experts(unknown, ["NETWORK"], "if_better", 0.01, young=True)["NETWORK"].activate
        assert not decide_experts(unknown, ["NETWORK"], "if_better", 0.01)["NETWORK"].activate

    def test_aggregates_have_names(self):
        names = [aggregate_name(chosen, BOTH) for chosen in ((), ("KR_SML",), BOTH, BOTH[::-1])]
        assert names == [BEFORE, "ENSEMBLE with KR_SML", ENSEMBLE, ENSEMBLE]
        three = (*BOTH, "another")
        assert aggregate_name(BOTH, three) == aggregate_name(BOTH[::-1], three) == "ENSEMBLE with KR_SML and NETWORK"

    def test_without_an_activation_what_is_best_forecasts(self):
        assert best_without_candidates(figures(**{BEFORE: 9.0}, profile=9.1)) == BEFORE
        assert best_without_candidates(figures(**{BEFORE: 9.0}, profile=9.0)) == BEFORE
        assert best_without_candidates(figures(**{BEFORE: 9.0}, profile=8.9)) == "profile"
        assert best_without_candidates(figures(**{BEFORE: 9.0}, profile=8.0, active=8.9)) == "active"
        assert best_without_candidates(figures(**{BEFORE: 9.0}, profile=8.0, active=9.1)) == BEFORE
        assert best_without_candidates(figures(**{BEFORE: None}, profile=None)) is None
