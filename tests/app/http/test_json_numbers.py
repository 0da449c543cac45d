"""Numbers in JSON bodies."""

from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from app.http.query_types import WHOLE

NUMBER = TypeAdapter(Annotated[int, Field(ge=1, le=10), WHOLE])


@pytest.mark.parametrize("given", [3, 3.0])
def test_whole_numbers_are_taken(given):
    assert NUMBER.validate_python(given) == 3


@pytest.mark.parametrize("given", ["3", True, 3.5, float("nan"), float("inf"), None, 0, 11, 1e300])
def test_anything_else_is_refused(given):
    with pytest.raises(ValidationError):
        NUMBER.validate_python(given)


def test_bounds_stay_in_the_schema():
    assert NUMBER.json_schema() == {"type": "integer", "minimum": 1, "maximum": 10}
