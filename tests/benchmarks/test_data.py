import numpy as np
import pytest

from benchmarks.data import load_set, paper_splits
from tests.support.data import MissingData, data_directory, running_in_ci


def test_missing_data_is_reported_with_its_setting(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWCAST_TEST_DATA", str(tmp_path))
    with pytest.raises(MissingData, match=r"no data at .*regression; set FLOWCAST_TEST_DATA"):
        data_directory("regression")


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), ("1", True), ("", False), ("false", False), ("0", False)]
)
def test_ci_is_recognised_by_its_variable(monkeypatch, value, expected):
    monkeypatch.setenv("CI", value)
    assert running_in_ci() is expected


def test_delve_sets_train_on_one_block_and_test_on_another():
    splits = paper_splits("kin8nm", 8192)
    assert [(s.train[0], s.train[-1], s.test[0], s.test[-1]) for s in splits] == [
        (1024 * b, 1024 * b + 1023, 1024 * (b + 4), 1024 * (b + 4) + 1023) for b in range(4)
    ]


def test_small_delve_sets_use_the_blocks_they_have():
    assert [(s.train[0], s.test[0]) for s in paper_splits("kin32fm", 4096)] == [(0, 2048), (1024, 3072)]
    (split,) = paper_splits("puma32fm", 1024)
    assert (len(split.train), len(split.test), split.test[0]) == (512, 512, 512)


def test_uci_sets_have_ten_seeded_splits_of_seventy_per_cent():
    splits = paper_splits("concrete", 1030)
    assert [len(s.train) for s in splits] == [721] * 10
    assert all(len(np.union1d(s.train, s.test)) == 1030 for s in splits)
    np.testing.assert_array_equal(splits[3].train, np.random.default_rng(3).permutation(1030)[:721])
    assert len(paper_splits("parkinsons", 5875)[0].train) == 1500


def test_sets_have_the_published_shape(regression_data):
    X, y = load_set(regression_data, "housing")
    assert X.shape == (506, 13)
    assert (y.min(), y.max()) == (5.0, 50.0)
