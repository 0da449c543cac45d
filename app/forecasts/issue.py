"""Issue forecasts: lag window, trained model, statement, stored. Where that cannot be, degrade and say why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.counts.queries import counts_between
from app.forecasts.usual import LEVEL, Said, UsualCounts, last_count
from app.links.queries import LinkInfo
from app.registry.loaded import Loaded, LoadedModels
from app.registry.queries import Place, active_models, once_active
from app.slots import Calendar
from model.artifact import DamagedArtifact
from model.lag_window import TooManyGaps

Array = NDArray[np.float64]

HORIZONS = 4  # slots ahead that are served
PROFILE, LAST_COUNT = "profile", "last_count"
DECIMALS = 3
NO_MODEL = "the link has no trained model"


class Statement(NamedTuple):
    """What is said about the slots after one, all horizons."""

    link: LinkInfo
    as_of: int  # Unix seconds of the newest slot known
    model_version: int  # 0 where no trained model spoke
    method: str
    degraded_reason: str | None
    filled_lags: int
    level: float
    expected: list[float]
    lower: list[float | None]
    upper: list[float | None]
    usual: list[float | None]
    issued_at: int  # microseconds since 1970

    def slot(self, horizon: int) -> int:
        """Start of the slot that is ``horizon`` ahead."""
        return self.as_of + horizon * self.link.slot_seconds


class Spoken(NamedTuple):
    """Who says what, and why not somebody better."""

    version: int
    method: str
    reason: str | None
    filled_lags: int
    level: float
    said: Said
    usual: Array | None


@dataclass
class Issuer:
    """States forecasts with the models in memory, and knows what is usual where there is none."""

    models: LoadedModels
    usual: UsualCounts = field(default_factory=UsualCounts)

    def state(self, session: Session, links: Sequence[LinkInfo], as_of: dict[int, int]) -> list[Statement]:
        """State the forecasts of links from their slots ``as_of``, by link key; links without one are left out."""
        links = [link for link in links if link.link_key in as_of]
        active = active_models(session, [link.link_key for link in links])
        chosen = {link.link_key: self._model(session, active.get(link.link_key)) for link in links}
        windows = _Windows(session, links, as_of, chosen)
        issued_at = time.time_ns() // 1000
        return [
            self._state(session, link, as_of[link.link_key], chosen[link.link_key], windows, issued_at)
            for link in links
        ]

    def _model(self, session: Session, place: Place | None) -> tuple[Loaded | None, str | None]:
        """Find a sound model: the active one, or the last before it, with the reason for the second best."""
        if place is None:
            return None, NO_MODEL
        try:
            return self.models.get(place), None
        except DamagedArtifact as damage:
            reason = f"the artifact of version {place.version} is damaged: {damage.reason}"
        for earlier in once_active(session, place.link_key):
            try:
                return self.models.get(earlier), f"{reason}; version {earlier.version} answers"
            except DamagedArtifact:
                continue
        return None, reason

    def _state(
        self,
        session: Session,
        link: LinkInfo,
        newest: int,
        chosen: tuple[Loaded | None, str | None],
        windows: _Windows,
        issued_at: int,
    ) -> Statement:
        loaded, reason = chosen
        spoken = None
        if loaded is not None:
            try:
                spoken = windows.spoken(link, newest, loaded, reason)
            except TooManyGaps as gaps:
                reason = str(gaps)
        spoken = spoken or self._without_window(session, link, newest, loaded, reason)
        return _statement(link, newest, spoken, issued_at)

    def window_of(self, session: Session, said: Statement) -> tuple[Loaded, Array] | None:
        """Give the model that made a statement, and the lag window it looked at; None where no model spoke."""
        key = said.link.link_key
        chosen = self._model(session, active_models(session, [key]).get(key))
        loaded = chosen[0]
        if loaded is None or loaded.version != said.model_version or said.method == PROFILE:
            return None
        windows = _Windows(session, [said.link], {key: said.as_of}, {key: chosen})
        try:
            return loaded, windows.latest(said.link, said.as_of, loaded)[0]
        except TooManyGaps:  # counts were corrected away since
            return None

    def state_late(self, session: Session, said: Statement, minutes: int) -> Statement:
        """State what is usual in place of a forecast whose newest count is too old by now."""
        place = active_models(session, [said.link.link_key]).get(said.link.link_key)
        loaded, _ = self._model(session, place)
        reason = f"no count has come for more than {minutes} minutes"
        spoken = self._without_window(session, said.link, said.as_of, loaded, reason)
        return _statement(said.link, said.as_of, spoken, time.time_ns() // 1000)

    def _without_window(
        self, session: Session, link: LinkInfo, newest: int, loaded: Loaded | None, reason: str | None
    ) -> Spoken:
        """Say what is usual, or failing that what was last."""
        profile, version = (loaded.model.profile, loaded.version) if loaded else (None, 0)
        usual = self.usual.of(session, link, newest, profile, version)
        if usual is None:
            said = last_count(session, link, newest, HORIZONS)
            return Spoken(0, LAST_COUNT, reason, 0, LEVEL, said, None)
        said = usual.at(link, newest + link.slot_seconds, HORIZONS)
        return Spoken(version, PROFILE, reason, 0, LEVEL, said, said.expected)


class _Windows:
    """The latest counts of several links, fetched at once."""

    def __init__(
        self,
        session: Session,
        links: Sequence[LinkInfo],
        as_of: dict[int, int],
        chosen: dict[int, tuple[Loaded | None, str | None]],
    ) -> None:
        self._calendars: dict[tuple[str, int, int, int], Calendar] = {}
        self._series: dict[int, Array] = {}
        alike: dict[tuple[int, int, int], list[LinkInfo]] = {}
        for link in links:
            loaded = chosen[link.link_key][0]
            if loaded is not None:
                reach = max(loaded.model.window.lags)
                alike.setdefault((as_of[link.link_key], link.slot_seconds, reach), []).append(link)
        for (newest, seconds, reach), group in alike.items():
            first = newest - (reach - 1) * seconds
            rows = counts_between(session, [link.link_key for link in group], first, newest)
            table = np.full((len(group), reach), np.nan)
            order = np.argsort([link.link_key for link in group])
            keys = np.array([group[i].link_key for i in order])
            table[order[np.searchsorted(keys, rows[:, 0])], (rows[:, 1] - first) // seconds] = rows[:, 2]
            self._series.update({link.link_key: row for link, row in zip(group, table, strict=True)})

    def spoken(self, link: LinkInfo, newest: int, loaded: Loaded, reason: str | None) -> Spoken:
        """Let a model speak; with more gaps in its window than may be filled, say so by ``TooManyGaps``."""
        window, filled = self.latest(link, newest, loaded)
        forecasts, bands = loaded.model.forecast(window), loaded.model.bands
        assert bands is not None
        said = Said(forecasts.expected[0], forecasts.lower[0], forecasts.upper[0])
        calendar = self._calendar(link, newest + link.slot_seconds, HORIZONS)
        usual = loaded.model.profile.at(calendar.weekday, calendar.slot_of_day)
        return Spoken(loaded.version, loaded.model.algorithm, reason, filled, bands.level, said, usual)

    def latest(self, link: LinkInfo, newest: int, loaded: Loaded) -> tuple[Array, int]:
        """Give the lag window, (1, d), gaps filled with what is usual, and how many were."""
        series, window = self._series[link.link_key], loaded.model.window
        if not np.isnan(series).any():
            return series[-np.array(window.lags)][None, :], 0
        calendar = self._calendar(link, newest - (len(series) - 1) * link.slot_seconds, len(series))
        latest = window.latest(series, fill=loaded.model.profile.at(calendar.weekday, calendar.slot_of_day))
        return latest.window, latest.filled_lags

    def _calendar(self, link: LinkInfo, first: int, n: int) -> Calendar:
        key = (link.zone_name, link.slot_minutes, first, n)  # mostly the same for all links of a city
        if key not in self._calendars:
            self._calendars[key] = link.grid.calendar(first // link.slot_seconds, n, link.zone)
        return self._calendars[key]


def _statement(link: LinkInfo, newest: int, spoken: Spoken, issued_at: int) -> Statement:
    said = spoken.said
    return Statement(
        link,
        newest,
        spoken.version,
        spoken.method,
        spoken.reason,
        spoken.filled_lags,
        spoken.level,
        _rounded(said.expected),
        _or_none(said.lower),
        _or_none(said.upper),
        _or_none(spoken.usual),
        issued_at,
    )


def _rounded(values: Array) -> list[float]:
    return [round(value, DECIMALS) for value in values[:HORIZONS].tolist()]


def _or_none(values: Array | None) -> list[float | None]:
    return [None] * HORIZONS if values is None else [*_rounded(values)]
