"""Parameters that several calls share, whole numbers of JSON bodies, and the refusal of unknown parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from app.core.errors import Invalid
from app.core.times import Instant

_KNOWN: dict[Callable[..., Any], frozenset[str]] = {}  # by the function that answers


def refuse_unknown(request: Request) -> None:
    """Refuse the first query parameter that the call does not know."""
    if not request.scope["query_string"]:
        return
    known = _known(request.scope["route"])
    for name, value in request.query_params.multi_items():
        if name not in known:
            rule = f"is not known here; known are {', '.join(sorted(known))}" if known else "is not known here; none is"
            raise Invalid.field(name[:100], value, rule)


def _known(route: APIRoute) -> frozenset[str]:
    """Return the parameters that a call declares."""
    known = _KNOWN.get(route.endpoint)
    if known is None:
        fields = get_flat_params(route.dependant)
        known = _KNOWN[route.endpoint] = frozenset(f.alias for f in fields if isinstance(f.field_info, params.Query))
    return known


def _whole(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool | str | bytes | float):
        raise ValueError("it must be a whole number")
    return value


# Makes an int JSON Schema's integer: Pydantic's own is too lenient ("180"), and its strict one too strict (180.0).
# Bounds stand before it, ``Annotated[int, Field(ge=1), WHOLE]``, or they are left out of the schema.
WHOLE = BeforeValidator(_whole)


_FROM = Query(alias="from", description="Start, included: RFC 3339 with an offset", examples=["2025-09-01T00:00:00Z"])
_TO = Query(alias="to", description="End, excluded: RFC 3339 with an offset", examples=["2025-09-02T00:00:00Z"])

From = Annotated[Instant | None, _FROM]
To = Annotated[Instant | None, _TO]
RequiredFrom = Annotated[Instant, _FROM]
RequiredTo = Annotated[Instant, _TO]
