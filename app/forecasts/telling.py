"""Tell of forecasts that were issued: other processes whose they are, and Prometheus how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.core import metrics
from app.core.database import concerns
from app.core.pg_notify import Kind
from app.forecasts.degraded import tally_reasons
from app.forecasts.issue import Statement

MOST_SLOTS = 10  # that other processes are told of one by one


def tell_processes(session: Session, statements: Sequence[Statement]) -> None:
    """Say whose forecasts are stored; those of very different slots may as well be anybody's."""
    by_slot: dict[int, list[int]] = {}
    for said in statements:
        by_slot.setdefault(said.as_of, []).append(said.link.link_key)
    if len(by_slot) <= MOST_SLOTS:
        for as_of, link_keys in by_slot.items():
            concerns(session, Kind.FORECASTS, link_keys, as_of)


def count_issued(statements: Sequence[Statement]) -> None:
    """Count what was issued, by method."""
    for method, n in Counter(said.method for said in statements).items():
        metrics.forecasts_issued(method, n)
    count_degraded(statements)


def count_degraded(statements: Sequence[Statement]) -> None:
    """Count what was not said by the active model, by reason."""
    for reason, n in tally_reasons(said.degraded_reason for said in statements).items():
        metrics.forecasts_degraded(reason, n)
