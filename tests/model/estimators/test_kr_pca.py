import numpy as np
import pytest

from model import KR, KR_PCA


@pytest.fixture
def leaning(rng):
    """Return five inputs with nearly all variance in two directions."""
    hidden = rng.standard_normal((80, 2))
    return hidden @ rng.standard_normal((2, 5)) + 0.01 * rng.standard_normal((80, 5)), hidden[:, 0]


def test_a_share_of_variance_decides_how_many_components(leaning):
    fitted = KR_PCA(n_components=0.99, n_neighbors=5).fit(*leaning)
    assert fitted.rank_ == 2
    assert fitted.explained_variance_ratio_.sum() >= 0.99


def test_a_whole_number_is_how_many(leaning):
    assert KR_PCA(n_components=3).fit(*leaning).rank_ == 3


def test_components_are_orthonormal(leaning):
    fitted = KR_PCA(n_components=3).fit(*leaning)
    np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(3), atol=1e-12)


def test_all_components_are_plain_kr(leaning):
    X, y = leaning
    np.testing.assert_allclose(
        KR_PCA(n_components=5, n_neighbors=7).fit(X, y).predict(X), KR(n_neighbors=7).fit(X, y).predict(X)
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "n_components=0 is refused"),
        (6, "n_components=6 is refused; n_samples=80 rows of 5 inputs have at most 5"),
        (1.0, r"n_components=1\.0 is refused; a share of variance must be below 1"),
        (-0.5, r"n_components=-0\.5 is refused"),
        ("most", "n_components='most' is refused"),
        (float("nan"), "n_components=nan is refused"),
    ],
)
def test_refuses_other_numbers(leaning, value, message):
    with pytest.raises(ValueError, match=message):
        KR_PCA(n_components=value).fit(*leaning)
