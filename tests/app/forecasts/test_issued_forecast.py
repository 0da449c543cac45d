"""Forecasts as JSON documents."""

import json

from app.forecasts.issued_forecast import HORIZONS, IssuedForecast, encode, link_document
from app.links.queries import LinkInfo

LINK = LinkInfo(1, 'a "link"', "", "UTC", 15, None)
FORECAST = IssuedForecast(
    LINK, 900, 3, "KR", None, 0, 0.9, [1.0, 2.0, 3.0, 4.0], [None] * 4, [9.0] * 4, [None] * 4, 1_700_000_000_000_001
)


def test_horizons_are_the_first_of_the_whole_document():
    whole = json.loads(encode(link_document(FORECAST, HORIZONS, 7)))
    assert [one["horizon"] for one in whole["forecasts"]] == [1, 2, 3, 4]
    assert [one["expected_count"] for one in whole["forecasts"]] == FORECAST.expected
    assert (whole["link_id"], whole["stale"]) == ('a "link"', False)
    for horizons in (1, 2, 3, 4):
        assert link_document(FORECAST, horizons, 7)["forecasts"] == whole["forecasts"][:horizons]
    assert {one["data_age_seconds"] for one in link_document(FORECAST, 2, 8)["forecasts"]} == {8}
