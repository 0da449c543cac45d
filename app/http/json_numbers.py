"""Numbers in JSON bodies: a text is none, and 180.0 is as whole as 180."""

from __future__ import annotations

from pydantic import BeforeValidator


def _whole(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool | str | bytes | float):
        raise ValueError("it must be a whole number")
    return value


# Makes an int JSON Schema's integer: Pydantic's own is too lenient ("180"), and its strict one too strict (180.0).
# Bounds stand before it, ``Annotated[int, Field(ge=1), WHOLE]``, or they are left out of the schema.
WHOLE = BeforeValidator(_whole)
