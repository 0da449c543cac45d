import numpy as np
import pytest

from app.evaluation.measures import Yardsticks, measure
from app.evaluation.protocol import SlotForecasts


def test_every_figure_of_a_small_example():
    actual = np.array([10.0, 20.0, 0.0, np.nan, 30.0])
    said = SlotForecasts(np.array([12.0, 16.0, 0.0, 5.0, 33.0]), np.zeros(5), np.array([20.0, 18.0, 0.0, 9.0, 40.0]))
    profile, last_week = actual + 4.0, np.array([np.nan, 14.0, 0.0, 1.0, 36.0])
    got = measure(actual, said, Yardsticks(profile, last_week), 15)
    assert got.rmse == pytest.approx(np.sqrt((4 + 16 + 0 + 9) / 4))
    assert got.mae == pytest.approx(9 / 4)
    assert got.bias == pytest.approx(1 / 4)
    assert got.mare == pytest.approx((0.2 + 0.2 + 0.1) / 3)
    assert got.wape == pytest.approx(9 / 60)
    assert got.geh_pass_share == 1.0
    assert got.mean_geh == pytest.approx(np.mean([np.sqrt(8 * e * e / s) for e, s in ((2, 22), (4, 36), (3, 63))]))
    assert got.coverage == pytest.approx(3 / 4)
    assert got.interval_width == pytest.approx((20 + 18 + 0 + 40) / 4)
    assert got.skill_profile == pytest.approx(1 - np.sqrt(29 / 4) / 4)
    assert got.skill_last_week == pytest.approx(1 - np.sqrt(25 / 3) / np.sqrt(72 / 3))
    assert (got.n_used, got.n_missing, got.n_below_floor, got.n_without_flow, got.n_last_week) == (4, 1, 1, 1, 3)


def test_what_is_undefined_is_none():
    zeros = np.zeros(3)
    got = measure(zeros, SlotForecasts(zeros, zeros, zeros), Yardsticks(zeros, np.full(3, np.nan)), 15)
    assert (got.rmse, got.coverage, got.interval_width) == (0.0, 1.0, 0.0)
    assert [got.mare, got.wape, got.geh_pass_share, got.mean_geh] == [None] * 4
    assert [got.skill_profile, got.skill_last_week] == [None] * 2
    assert (got.n_used, got.n_below_floor, got.n_without_flow) == (3, 3, 3)
