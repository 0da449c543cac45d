"""Which of the offered media types a caller would rather have, by its Accept header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute

from app.core.errors import NotAcceptable

JSON, CSV = "application/json", "text/csv"
WHATEVER = ("*/*", JSON)  # as most clients ask, which every call can answer
_OFFERED: dict[Callable[..., Any], tuple[str, ...]] = {}  # by the function that answers


def chosen_type(request: Request, *offered: str) -> str:
    """Return the media type to answer in; raise a problem where the caller accepts none of those offered."""
    accept = ",".join(request.headers.getlist("accept")) or "*/*"
    chosen = preferred(accept, offered)
    if chosen is None:
        raise NotAcceptable(f"Accept={accept[:100]!r} is refused; this call returns {' or '.join(offered)}")
    return chosen


def refuse_unacceptable(request: Request) -> None:
    """Refuse a read whose answer could be in none of the media types that its caller accepts.

    Writes are not refused: what they store matters more than how their report is written.
    """
    if request.method == "GET" and request.headers.get("accept", "*/*") not in WHATEVER:
        chosen_type(request, *_offered(request.scope["route"]))


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """Return the offered type that is accepted most, of equals the first; None where none is accepted."""
    wishes = [_wish(part) for part in accept.split(",")]
    qualities = {media_type: _quality(media_type, wishes) for media_type in offered}
    best = max(offered, key=lambda media_type: qualities[media_type])
    return best if qualities[best] > 0 else None


def _offered(route: APIRoute) -> tuple[str, ...]:
    """Return the media types that a route documents for its answers; JSON is always one."""
    offered = _OFFERED.get(route.endpoint)
    if offered is None:
        others = route.responses.get(200, {}).get("content", {})
        offered = _OFFERED[route.endpoint] = (JSON, *(media_type for media_type in others if media_type != JSON))
    return offered


def _wish(part: str) -> tuple[str, float]:
    media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                quality = min(1.0, max(0.0, float(parameter[2:])))
            except ValueError:
                quality = 0.0
    return media_type, quality


def _quality(media_type: str, wishes: Sequence[tuple[str, float]]) -> float:
    """Return the quality of the most specific media range that matches."""
    for pattern in (media_type, media_type.split("/")[0] + "/*", "*/*"):
        for wished, quality in wishes:
            if wished == pattern:
                return quality
    return 0.0
