"""Degraded forecasts are counted by the kind of their reason."""

from app.core.metrics import DEGRADED
from app.forecasts.issued_forecast import Degradation


def test_every_kind_is_counted():
    assert [*Degradation] == [*map(Degradation, DEGRADED)]
