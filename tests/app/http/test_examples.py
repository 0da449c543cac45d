"""Examples of bodies, made of the examples of their fields."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from app.http.examples import example_of, with_example


class Kind(StrEnum):
    ONE = "one"
    TWO = "two"


class Item(BaseModel):
    name: str = Field(examples=["Ba", "Cf"])
    kind: Kind


def test_a_field_shows_its_example_its_default_or_its_type():
    class Page(BaseModel):
        items: list[Item]
        names: list[str]
        from_: datetime = Field(serialization_alias="from")
        state: Literal["open", "over"]
        either: list[str] | list[Item]
        cursor: str | None
        limit: int = 7

    assert example_of(Page) == {
        "items": [{"name": "Ba", "kind": "one"}],
        "names": [],
        "from": "2025-09-26T06:45:00Z",
        "state": "open",
        "either": [{"name": "Ba", "kind": "one"}],
        "cursor": None,
        "limit": 7,
    }


def test_the_example_is_in_the_schema():
    assert with_example(Item).model_json_schema()["examples"] == [{"name": "Ba", "kind": "one"}]


def test_a_field_that_needs_an_example_is_named():
    class Count(BaseModel):
        count: int

    with pytest.raises(TypeError, match=r"Count\.count needs an example"):
        example_of(Count)
