"""Forecasts of a link whose counts stopped coming: the slots from now on, by its profile.

They are computed when they are read and are never stored. What they are computed from is kept with the link's
cached forecast, so that the next slot needs no database.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy.orm import Session

from app.counts.series import LinkSeries
from app.forecasts.issue import LAST_COUNT, PROFILE, Issuer, Spoken, Statement, as_statement
from app.forecasts.usual import LEVEL, Said, Usual, Wanted, last_count
from app.forecasts.windows import HORIZONS
from app.registry.queries import active_models


class Fallback(NamedTuple):
    """What answers for a link without recent counts: its profile, or its last count where it has no profile."""

    version: int  # of the trained model that the profile belongs to; 0 for none
    usual: Usual | None
    last: float = 0.0

    def statement(self, said: Statement, now: int, minutes: int) -> Statement:
        """Return the forecasts that replace a statement, from the slot that contains now on."""
        link = said.link
        first = now - now % link.slot_seconds
        reason = f"no count has come for more than {minutes} minutes"
        if self.usual is None:
            # Without an interval: errors of the last count are known for the next few slots only.
            spoken = Spoken(0, LAST_COUNT, reason, 0, LEVEL, Said.constant(self.last, HORIZONS), None)
        else:
            profile = self.usual.at(link, first, HORIZONS)
            spoken = Spoken(self.version, PROFILE, reason, 0, LEVEL, profile, profile.expected)
        return as_statement(link, said.as_of, spoken, time.time_ns() // 1000)._replace(first_slot=first)


def read_fallback(session: Session, issuer: Issuer, said: Statement) -> Fallback:
    """Read or learn the profile of a link."""
    link = said.link
    loaded, _ = issuer.choose_model(session, link, active_models(session, [link.link_key]).get(link.link_key))
    profile, version = (loaded.model.profile, loaded.version) if loaded else (None, 0)
    usual = issuer.usual.of(session, Wanted(link, said.as_of, profile, version))
    if isinstance(usual, LinkSeries):
        return Fallback(0, None, float(last_count(usual, said.as_of, 1).expected[0]))
    return Fallback(version, usual)


def fallback_in_memory(issuer: Issuer, said: Statement) -> Fallback | None:
    """Return what memory knows of a link while the database is unreachable; None where that is nothing."""
    link, version = said.link, said.model_version
    usual = issuer.usual.in_memory(link, said.as_of, version)
    if usual is None and (loaded := issuer.models.in_memory(link.link_key, version)) is not None:
        usual = Usual(loaded.model.profile, None)
    if usual is not None:
        return Fallback(version, usual)
    return Fallback(0, None, said.expected[0]) if said.method == LAST_COUNT else None
