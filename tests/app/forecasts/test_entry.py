"""A forecast written as JSON, cut where the age goes."""

import json

from app.forecasts.entry import Rendered
from app.forecasts.issue import Statement
from app.forecasts.windows import HORIZONS
from app.links.queries import LinkInfo

LINK = LinkInfo(1, 'a "link"', "", "UTC", 15, None)
SAID = Statement(
    LINK, 900, 3, "KR", None, 0, 0.9, [1.0, 2.0, 3.0, 4.0], [None] * 4, [9.0] * 4, [None] * 4, 1_700_000_000_000_001
)


def test_horizons_are_the_same_in_whatever_order_they_are_asked_for():
    whole = json.loads(Rendered(SAID).body(HORIZONS, 7))
    assert [one["horizon"] for one in whole["forecasts"]] == [1, 2, 3, 4]
    assert [one["expected_count"] for one in whole["forecasts"]] == SAID.expected
    assert whole["link_id"] == 'a "link"'
    some = Rendered(SAID)
    for horizons in (1, 3, 2, 4, 1):
        assert json.loads(some.body(horizons, 7))["forecasts"] == whole["forecasts"][:horizons]
    assert {one["data_age_seconds"] for one in json.loads(some.body(2, 8))["forecasts"]} == {8}
