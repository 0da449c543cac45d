"""What storing counts needs of the process: the database, the clock, and the forecasts to issue afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol

from fastapi import Depends, Request
from sqlalchemy import Engine

from app.core.clock import Clock
from app.counts.queries import Rows
from app.links.queries import LinkInfo
from app.settings import Settings


class IssueForecasts(Protocol):
    """Issues forecasts of links whose newest slot moved forward."""

    def __call__(self, links: Sequence[LinkInfo], stored: Rows | None = None) -> int:
        """Return how many links have a new forecast; ``stored`` are the counts that moved them."""


class IngestContext(NamedTuple):
    """What storing counts needs."""

    settings: Settings
    engine: Engine
    clock: Clock
    issue_forecasts: IssueForecasts


async def get_ingest_context(request: Request) -> IngestContext:
    """Return what storing counts needs, as the service has opened it."""
    state = request.app.state
    return IngestContext(state.settings, state.engine, state.clock, state.issue_forecasts)


IngestContextDep = Annotated[IngestContext, Depends(get_ingest_context)]
