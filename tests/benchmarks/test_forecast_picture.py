"""The README's picture of a forecast."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.demo.city import sample_city
from benchmarks.forecast_picture import draw
from tests.support.data import MissingData

pytestmark = pytest.mark.journey


MOST_BYTES = 60_000
IN_THE_TREE = Path(__file__).parents[2] / "docs" / "pictures" / "forecast.svg"


def words(picture: Path) -> str:
    return " ".join(ElementTree.parse(picture).getroot().itertext())


def test_a_day_is_drawn_with_its_forecasts(tmp_path):
    city = sample_city(links=1, days=16)
    picture = tmp_path / "pictures" / "forecast.svg"
    assert 0.7 < draw(city, "Ba", 15, picture) <= 1.0
    assert "Link Ba of the sample city, Tuesday 16 September 2025" in words(picture)
    assert picture.stat().st_size < MOST_BYTES


def test_a_link_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MissingData, match="no link Zz; there are Ba"):
        draw(sample_city(links=1, days=16), "Zz", 15, tmp_path / "forecast.svg")


def test_the_picture_in_the_tree_is_small_and_has_its_texts():
    assert IN_THE_TREE.stat().st_size < MOST_BYTES
    assert all(label in words(IN_THE_TREE) for label in ("90 % interval", "expected", "count that came"))
