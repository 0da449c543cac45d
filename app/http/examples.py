"""Examples of bodies in the OpenAPI document, made of the examples of their fields."""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Model = TypeVar("Model", bound=BaseModel)

# Examples of fields that have none of their own.
SIMPLE: dict[Any, Any] = {datetime: "2025-09-26T06:45:00Z", date: "2025-09-26", bool: False}


def with_example(model: type[Model]) -> type[Model]:
    """Add an example to the schema of a model, as its decorator."""
    model.model_config["json_schema_extra"] = {"examples": [example_of(model)]}
    return model


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return an example of a model: of each field its first example, or else its default or what its type shows."""
    fields = model.model_fields.items()
    return {field.serialization_alias or name: _value(f"{model.__name__}.{name}", field) for name, field in fields}


def _value(name: str, field: FieldInfo) -> Any:
    if field.examples:
        return field.examples[0]
    return _of_type(name, field.annotation) if field.is_required() else field.get_default(call_default_factory=True)


def _of_type(name: str, kind: Any) -> Any:
    """Return a value of a type; raise ``TypeError`` for one that needs an example."""
    options = get_args(kind)
    if NoneType in options:
        return None
    if get_origin(kind) is Literal:
        return options[0]
    if get_origin(kind) is UnionType:
        return _of_type(name, options[-1])
    if get_origin(kind) is list:
        return [example_of(options[0])] if _is(BaseModel, options[0]) else []
    if get_origin(kind) is dict:
        return {}
    if _is(Enum, kind):
        return next(iter(kind)).value
    if _is(BaseModel, kind):
        return example_of(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    raise TypeError(f"{name} needs an example in its Field")


def _is(base: type, kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)
