"""The horizons and levels that a caller wants of forecasts, and the documents that have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from app.core.errors import Invalid, no_link
from app.forecasts.cache import ForecastCache
from app.forecasts.day_ahead import extended, longest_horizon, read_profiles
from app.forecasts.issued_forecast import HORIZONS, Document, IssuedForecast, link_document, listed_document
from app.forecasts.levels import add_intervals, at_level
from app.forecasts.profile_fallback import LinkProfile
from app.links.queries import LinkInfo

HORIZON_RULE = "must be at most"


class ForecastOptions(NamedTuple):
    """The horizons and the levels of intervals that a caller wants; without levels, that of the issued forecast."""

    horizons: int = 1
    levels: tuple[float, ...] = ()

    @property
    def needs_profile(self) -> bool:
        """Return whether more horizons are wanted than are issued."""
        return self.horizons > HORIZONS

    def check(self, links: Iterable[LinkInfo]) -> None:
        """Refuse more horizons than are possible for the link with the shortest slots."""
        if not self.needs_profile:
            return
        shortest = min(links, key=lambda link: link.slot_minutes, default=None)
        if shortest is not None and self.horizons > (most := longest_horizon(shortest)):
            rule = f"{HORIZON_RULE} {most} for slots of {shortest.slot_minutes} minutes"
            raise Invalid.field("horizon", self.horizons, rule)

    def link_document(
        self, issued: IssuedForecast, profile: LinkProfile | None, age: int, *, stale: bool = False
    ) -> Document:
        """Return the document of one link; ``profile`` is used beyond the issued horizons only."""
        forecasts = self._at_levels(issued, profile)
        return _with_intervals(link_document(forecasts[0], self.horizons, age, stale=stale), forecasts)

    def listed_document(self, issued: IssuedForecast, profile: LinkProfile | None, age: int) -> Document:
        """Return the document of a link as one of many."""
        forecasts = self._at_levels(issued, profile)
        return _with_intervals(listed_document(forecasts[0], self.horizons, age), forecasts)

    def _at_levels(self, issued: IssuedForecast, profile: LinkProfile | None) -> list[IssuedForecast]:
        whole = extended(issued, profile, self.horizons) if self.needs_profile else issued
        return [at_level(whole, level) for level in self.levels] or [whole]


def _with_intervals(document: Document, forecasts: list[IssuedForecast]) -> Document:
    if len(forecasts) > 1:
        add_intervals(document["forecasts"], forecasts)
    return document


def latest_forecast(cache: ForecastCache, link_id: str, options: ForecastOptions) -> Document:
    """Return the document of a link's latest forecast, current or stale, or raise why there is none."""
    entries, stale = cache.latest([link_id])
    if link_id not in entries:
        raise no_link(link_id)
    entry = entries[link_id]
    options.check([entry.key.link])
    forecast, age = cache.current(entry)
    if forecast is None:
        raise entry.missing(stale=stale)
    profile = None
    if options.needs_profile:
        profiles = read_profiles(cache, [(entry, forecast)], stale=stale)
        profile, stale = profiles.of(forecast.link), stale or profiles.unreachable
    return options.link_document(forecast, profile, age, stale=stale)
