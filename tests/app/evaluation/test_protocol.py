import numpy as np
import pytest

from app.evaluation.days import DaySplit
from app.evaluation.plan import METHODS, EvaluationPlan
from app.evaluation.protocol import PaperModel, run
from model import KR
from tests.support.evaluation import PLAN, city_links, steady_link, with_counts


@pytest.fixture(scope="module")
def split() -> DaySplit:
    return DaySplit(city_links()[0], 8 * 96, 12)


def test_kr_under_the_paper_is_plain_kr_in_the_links_own_units(split):
    model = PaperModel.fit("KR", split)
    counts = split.training.counts
    center, scale = np.nanmean(counts), np.nanstd(counts)
    plain = KR(n_neighbors=8, standardize=False).fit((split.rows.X - center) / scale, (split.rows.y - center) / scale)
    windows = split.windows(split.test_slots)
    np.testing.assert_allclose(model.expected(windows), plain.predict((windows - center) / scale) * scale + center)


def test_leave_one_out_looks_at_no_neighbour_within_a_day(split):
    model = PaperModel.fit("KR", split)
    expected = model.expected_counts_excluding(96)
    rows = split.rows
    for at in (0, 300, len(rows.y) - 1):
        far = np.abs(rows.positions - rows.positions[at]) > 96
        scaled = (rows.X - model.center) / model.scale
        distances = ((scaled[far] - scaled[at]) ** 2).sum(axis=1)
        nearest = np.argsort(distances, kind="stable")[:8]
        weights = np.exp(-distances[nearest] / 2)
        assert expected[at] == pytest.approx(weights @ rows.y[far][nearest] / weights.sum())


def test_where_a_day_bars_everything_there_is_no_forecast():
    short = DaySplit(steady_link(days=3), 100, 12)
    assert np.isnan(PaperModel.fit("KR", short).expected_counts_excluding(96)).all()


@pytest.mark.journey
@pytest.mark.parametrize("protocol", ["paper", "product"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_forecasts_every_test_slot_and_training_window(split, method, protocol):
    plan = EvaluationPlan(8, 2, protocol=protocol, lags=12)
    done = run(method, split, plan)
    assert done.neighbors == plan.neighbors_of(method)
    assert done.components.shape[1] == 12
    assert len(done.test.expected) == 2 * 96
    assert (done.test.lower <= done.test.expected).all()
    assert (done.test.expected <= done.test.upper).all()
    assert done.test.lower.min() >= 0.0
    forecast = np.flatnonzero(~np.isnan(done.train.expected))
    np.testing.assert_array_equal(forecast, split.rows.positions)
    assert (done.mu is not None) == (method == "KR_SML")
    assert done.n_iter is None or done.n_iter >= 0


@pytest.mark.journey
def test_kr_sml_is_what_the_product_trains(split):
    from model.link_model.training import train

    model = train(split.training, PLAN.training_plan("KR_SML")).model
    expected = model.forecast(split.windows(split.test_slots))
    done = run("KR_SML", split, PLAN)
    for ours, theirs in zip(done.test, expected, strict=True):
        np.testing.assert_allclose(ours, theirs[:, 0], rtol=0.0, atol=1e-9)


def test_what_rounding_leaves_decides_nothing():
    link = steady_link()
    busy = np.where(link.counts > 100, 1.0, 0.0)
    done = run("KR", DaySplit(with_counts(link, busy), 8 * 96, 12), PLAN)
    for values in done.test:
        whole = np.round(values)
        near = np.abs(values - whole) < 1e-9
        assert near.any()
        np.testing.assert_array_equal(values[near], whole[near])
