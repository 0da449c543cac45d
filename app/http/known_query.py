"""Query parameters that a call does not know are refused by name: a mistyped one would silently do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute

from app.core.errors import Invalid

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
    """Give the parameters that a call declares."""
    known = _KNOWN.get(route.endpoint)
    if known is None:
        fields = get_flat_params(route.dependant)
        known = _KNOWN[route.endpoint] = frozenset(f.alias for f in fields if isinstance(f.field_info, Query))
    return known
