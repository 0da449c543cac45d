"""Spans of time in a query: ``from`` and ``to``."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from app.core.times import Instant

_FROM = Query(alias="from", description="Start, included: RFC 3339 with an offset", examples=["2025-09-01T00:00:00Z"])
_TO = Query(alias="to", description="End, excluded: RFC 3339 with an offset", examples=["2025-09-02T00:00:00Z"])

From = Annotated[Instant | None, _FROM]
To = Annotated[Instant | None, _TO]
RequiredFrom = Annotated[Instant, _FROM]
RequiredTo = Annotated[Instant, _TO]
