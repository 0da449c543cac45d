from dataclasses import replace

import numpy as np
import pytest

from model.link_model.forecast_each import forecast_each
from model.link_model.training import train
from model.link_model.training_plan import TrainingPlan
from tests.support.link_series import QUICK, link


@pytest.fixture(scope="module")
def models():
    return [
        train(link(15, seed=1), TrainingPlan(**QUICK)).model,
        train(link(15, seed=2), TrainingPlan(**QUICK | {"algorithm": "KR"})).model,
        train(link(15, seed=3), TrainingPlan(**QUICK | {"n_neighbors": 5, "lags": 20, "algorithm": "KR"})).model,
        train(link(15, seed=4), TrainingPlan(**QUICK | {"algorithm": "KR_PCA"})).model,
    ]


def test_forecasts_are_those_of_each_model_alone(models, rng):
    windows = [np.abs(rng.normal(80, 50, (1, len(model.window)))) for model in models]
    for model, window, result in zip(models, windows, forecast_each(models, windows), strict=True):
        alone = model.forecast(window)
        for together, by_itself in zip(result, alone, strict=True):
            np.testing.assert_allclose(together, by_itself, rtol=1e-12)


def test_neighbours_that_were_followed_by_nothing_do_not_count(models, rng):
    model = models[0]
    steps = model.continuations.steps.copy()
    steps[::2] = -32768
    gappy = replace(model, continuations=replace(model.continuations, steps=steps))
    windows = [np.abs(rng.normal(80, 50, (1, 12))) for _ in range(5)]
    for window, result in zip(windows, forecast_each([gappy] * 5, windows), strict=True):
        np.testing.assert_allclose(result.expected, gappy.forecast(window).expected, rtol=1e-12)


def test_no_models_give_no_forecasts():
    assert forecast_each([], []) == []
