import math

import numpy as np
import pytest

from model.error_measures import Measure, bias, coverage, geh, geh_pass_share, mae, mare, passes_geh, rmse, skill, wape

NAN = float("nan")
ACTUAL = [10.0, 0.0, 4.0, NAN, 20.0]
EXPECTED = [13.0, 1.0, 4.0, 7.0, NAN]


def test_rmse_mae_and_bias_use_the_slots_known_on_both_sides():
    assert rmse(ACTUAL, EXPECTED) == Measure(pytest.approx(math.sqrt(10 / 3)), 3, 0, 2)
    assert mae(ACTUAL, EXPECTED) == Measure(pytest.approx(4 / 3), 3, 0, 2)
    assert bias(ACTUAL, EXPECTED) == Measure(pytest.approx(4 / 3), 3, 0, 2)


def test_bias_is_positive_when_too_much_was_expected():
    assert bias([1.0, 2.0], [2.0, 4.0]).value == 1.5


def test_wape_divides_sums():
    assert wape(ACTUAL, EXPECTED) == Measure(pytest.approx(4 / 14), 3, 0, 2)


def test_mare_leaves_out_and_counts_what_is_below_the_floor():
    assert mare(ACTUAL, EXPECTED) == Measure(pytest.approx(0.15), 2, 1, 2)
    assert mare(ACTUAL, EXPECTED, floor=5) == Measure(pytest.approx(0.3), 1, 2, 2)


def test_mare_of_other_targets_leaves_out_only_zero():
    assert mare([-2.0, 0.5, 0.0], [-1.0, 1.0, 3.0], floor=0) == Measure(pytest.approx(0.75), 2, 1, 0)


def test_geh_is_on_hourly_flows():
    # 100 and 120 vehicles in 15 minutes are 400 and 480 an hour.
    assert geh([100.0], [120.0])[0] == pytest.approx(math.sqrt(2 * 80**2 / 880))
    assert geh([100.0], [120.0], slot_minutes=60)[0] == pytest.approx(math.sqrt(2 * 20**2 / 220))


def test_geh_pass_share_leaves_out_and_counts_empty_and_missing_slots():
    share = geh_pass_share([100.0, 0.0, 100.0, NAN], [101.0, 0.0, 200.0, 5.0])
    assert share == Measure(0.5, 2, 1, 1)


def test_a_link_passes_at_85_per_cent():
    assert passes_geh(Measure(0.85, 20)) is True
    assert passes_geh(Measure(0.84, 20)) is False
    assert passes_geh(Measure(None, 0)) is None


def test_values_too_large_or_small_for_a_quotient_are_none():
    assert rmse([1e200], [-1e200]).value == 2e200
    assert mare([1e-310], [5.0], floor=0).value is None
    assert wape([1e-310], [5.0]).value is None
    assert skill([0.0], [1e200], [1e200]).value == 0.0


def test_coverage_includes_the_bounds():
    assert coverage([1.0, 2.0, 3.0, NAN], [1.0, 0.0, 4.0, 0.0], [1.0, 1.0, 5.0, 9.0]) == Measure(
        pytest.approx(1 / 3), 3, 0, 1
    )


def test_skill_compares_with_a_reference_on_the_same_slots():
    assert skill([0.0, 0.0, 5.0], [1.0, 1.0, 0.0], [2.0, 2.0, NAN]) == Measure(0.5, 2, 0, 1)


@pytest.mark.parametrize("measure", [rmse, mae, bias, wape, mare, geh_pass_share])
@pytest.mark.parametrize("values", [[], [NAN, NAN]])
def test_nothing_to_measure_is_none_with_its_numbers(measure, values):
    assert measure(values, [1.0] * len(values)) == Measure(None, 0, 0, len(values))


def test_undefined_values_are_none_never_nan_or_infinite():
    zeros = np.zeros(3)
    assert wape(zeros, zeros + 1) == Measure(None, 3)
    assert mare(zeros, zeros + 1) == Measure(None, 0, 3)
    assert geh_pass_share(zeros, zeros) == Measure(None, 0, 3)
    assert skill(zeros, zeros + 1, zeros) == Measure(None, 3)
    assert coverage([NAN], [0.0], [1.0]) == Measure(None, 0, 0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rmse([1.0], [1.0, 2.0]), r"actual has shape \(1,\), expected \(2,\)"),
        (lambda: rmse([[1.0]], [[1.0]]), "one-dimensional"),
        (lambda: rmse([1.0, np.inf], [1.0, 1.0]), "actual holds an infinite value at index 1"),
        (lambda: mare([1.0], [1.0], floor=-1), "floor=-1 is refused"),
        (lambda: mare([1.0], [1.0], floor="a"), "floor='a' is refused"),
        (lambda: coverage([1.0], [0.0], [np.inf]), "upper holds an infinite value at index 0"),
        (lambda: coverage([1.0], [2.0], [0.0]), "lower is above upper at index 0"),
        (lambda: skill([1.0, 2.0], [0.0, 0.0], [1.0]), r"actual has shape \(2,\), reference \(1,\)"),
        (lambda: geh([1.0], [1.0], slot_minutes=0), "slot_minutes=0 is refused"),
        (lambda: geh([1.0], [-1.0]), r"flows of at least 0; got -1\.0"),
    ],
)
def test_refuses_what_cannot_be_measured(call, message):
    with pytest.raises(ValueError, match=message):
        call()
