"""Parts of a request: its path, its query parameters, and its headers Accept and If-None-Match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Query, Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from starlette.routing import Route
from starlette.types import Scope

from app.core.errors import Invalid, NotAcceptable
from app.core.times import Instant

JSON = "application/json"
ANY_TYPE = ("*/*", JSON)  # sent by most clients; every call can return JSON


def route_path(scope: Scope) -> str:
    """Return the path of a request without the prefix that a reverse proxy may have left on it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root + "/") else path


def allowed_methods(scope: Scope) -> set[str]:
    """Return the methods of a request's path; Starlette names those of the first route that matches only."""
    path = route_path(scope)
    routes = [route for route in scope["app"].routes if isinstance(route, Route) and route.path_regex.match(path)]
    return {method for route in routes for method in route.methods or ()}


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


# The names of query parameters by the function of their route; to collect them takes longer than all other checks.
_declared: dict[Callable[..., Any], frozenset[str]] = {}


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse the first query parameter that the call does not declare."""
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    if (declared := _declared.get(route.endpoint)) is None:
        found = {f.alias for f in get_flat_params(route.dependant) if isinstance(f.field_info, params.Query)}
        declared = _declared[route.endpoint] = frozenset(found)
    for name, value in request.query_params.multi_items():
        if name not in declared:
            known = f"known are {', '.join(sorted(declared))}" if declared else "none is"
            raise Invalid.field(name[:100], value, f"is not known here; {known}")


def next_page(request: Request, next_cursor: str | None) -> dict[str, str]:
    """Return the Link header (RFC 8288) that leads to the next page, relative to this one; none at the end."""
    if next_cursor is None:
        return {}
    return {"Link": f'<?{request.url.include_query_params(cursor=next_cursor).query}>; rel="next"'}


def is_unchanged(request: Request, tag: str) -> bool:
    """Return whether the caller has the answer with an ETag already; RFC 9110 compares If-None-Match weakly."""
    tags = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    return tags == ["*"] or tag.removeprefix("W/") in tags


def refuse_unacceptable(request: Request) -> None:
    """Refuse a read whose answer could be in none of the media types that its caller accepts.

    Writes are not refused: what they store matters more than how their report is written.
    """
    if request.method == "GET" and request.headers.get("accept", "*/*") not in ANY_TYPE:
        route: APIRoute = request.scope["route"]
        documented = route.responses.get(200, {}).get("content", {})
        chosen_type(request, *dict.fromkeys([JSON, *documented]))


def chosen_type(request: Request, *offered: str) -> str:
    """Return the media type to answer in; raise a problem where the caller accepts none of those offered."""
    accept = ",".join(request.headers.getlist("accept")) or "*/*"
    if accept in ("*/*", offered[0]):  # as most clients send it
        return offered[0]
    chosen = preferred_type(accept, offered)
    if chosen is None:
        raise NotAcceptable(f"Accept={accept[:100]!r} is refused; this call returns {' or '.join(offered)}")
    return chosen


def preferred_type(accept: str, offered: Sequence[str]) -> str | None:
    """Return the offered type that an Accept header prefers (RFC 9110, section 12.5.1); None where it accepts none.

    Of types that are accepted alike, the first is returned.
    """
    qualities: dict[str, float] = {}
    for part in accept.split(","):
        media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
        qualities.setdefault(media_range, _quality(parameters))

    def quality(media_type: str) -> float:
        ranges = (media_type, media_type.split("/")[0] + "/*", "*/*")  # the most specific first
        return next((qualities[media_range] for media_range in ranges if media_range in qualities), 0.0)

    best = max(offered, key=quality)
    return best if quality(best) > 0 else None


def _quality(parameters: Sequence[str]) -> float:
    given = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    try:
        return min(1.0, max(0.0, float(given)))
    except ValueError:
        return 0.0
