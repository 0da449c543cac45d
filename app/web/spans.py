"""Spans of time in a query: ``from`` and ``to``."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from app.web.instants import Instant

From = Annotated[
    Instant | None,
    Query(alias="from", description="Start, included: RFC 3339 with an offset", examples=["2025-09-01T00:00:00Z"]),
]
To = Annotated[
    Instant | None,
    Query(alias="to", description="End, excluded: RFC 3339 with an offset", examples=["2025-09-02T00:00:00Z"]),
]
