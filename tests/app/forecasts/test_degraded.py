"""Reasons that can be counted by."""

import numpy as np
import pytest

from app.core.metrics import DEGRADED
from app.forecasts.degraded import OTHER, PHRASES, reason_in_short, tally_reasons
from app.forecasts.issue import NO_MODEL
from app.forecasts.network_ask import too_many_gaps
from model.link_model.lag_window import LagWindow, TooManyGaps


def gaps(counts: list[float]) -> str:
    with pytest.raises(TooManyGaps) as told:
        LagWindow(lags=(1, 2, 3, 4)).latest(np.array(counts))
    return str(told.value)


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        (NO_MODEL, "no_model"),
        (gaps([1.0, 2.0]), "gaps"),
        (gaps([np.nan, np.nan, np.nan, 1.0]), "gaps"),
        (too_many_gaps(10_000), "gaps"),
        ("the artifact of version 3 is damaged: its window failed: lags ; version 2 answers", "damaged_model"),
        ("its window failed: ValueError", "failed"),
        ("its context failed: KeyError", "failed"),
        ("its network has no profile of it", "no_profile"),
        ("no count has come for more than 90 minutes", "stale"),
        ("something new", OTHER),
    ],
)
def test_each_reason_has_a_short_form(reason, short):
    assert reason_in_short(reason) == short
    assert short in DEGRADED


def test_short_forms_are_those_that_are_counted():
    assert {*PHRASES.values(), OTHER} == set(DEGRADED)


def test_reasons_are_counted_by_their_short_forms():
    told = tally_reasons([None, NO_MODEL, "3 of 45 lags are missing; at most 2 may be filled", "4 of 45 lags are gone"])
    assert told == {"no_model": 1, "gaps": 2}
