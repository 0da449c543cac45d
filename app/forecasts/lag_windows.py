"""The lag windows that forecasts look at, of many links at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.core.slots import Calendar
from app.counts.queries import Rows, counts_between
from app.links.queries import LinkInfo
from app.registry.loaded_models import Loaded
from model.link_model.trained_model import TrainedModel

Array = NDArray[np.float64]

HORIZONS = 4  # slots ahead that are served


class LagWindows:
    """The latest counts of several links, fetched at once."""

    def __init__(
        self,
        session: Session,
        links: Sequence[LinkInfo],
        as_of: dict[int, int],
        models: Mapping[int, Loaded | None],
        stored: Rows | None = None,
    ) -> None:
        self._calendars: dict[tuple[str, int, int, int], Calendar] = {}
        self._series: dict[int, Array] = {}
        alike: dict[tuple[int, int, int], list[LinkInfo]] = {}
        for link in links:
            loaded = models[link.link_key]
            if loaded is not None and isinstance(loaded.model, TrainedModel):
                reach = max(loaded.model.window.lags)
                alike.setdefault((as_of[link.link_key], link.slot_seconds, reach), []).append(link)
        for (newest, seconds, reach), group in alike.items():
            left = self._from_stored(group, newest, seconds, reach, stored) if stored is not None else group
            if left:
                self._from_database(session, left, newest, seconds, reach)

    def _from_stored(
        self, group: list[LinkInfo], newest: int, seconds: int, reach: int, stored: Rows
    ) -> list[LinkInfo]:
        """Take the series of links whose last counts are all among those just stored; give the other links."""
        ends = np.searchsorted(stored[:, 0], [link.link_key for link in group], side="right")
        left = []
        for link, end in zip(group, ends.tolist(), strict=True):
            last = stored[max(0, end - reach) : end]
            first = newest - (reach - 1) * seconds
            if (
                len(last) == reach
                and (last[:, 0] == link.link_key).all()
                and last[0, 1] == first
                and last[-1, 1] == newest
            ):
                self._series[link.link_key] = last[:, 2].astype(np.float64)  # as many as slots, so none is missing
            else:
                left.append(link)
        return left

    def _from_database(self, session: Session, group: list[LinkInfo], newest: int, seconds: int, reach: int) -> None:
        first = newest - (reach - 1) * seconds
        rows = counts_between(session, [link.link_key for link in group], first, newest)
        table = np.full((len(group), reach), np.nan)
        order = np.argsort([link.link_key for link in group])
        keys = np.array([group[i].link_key for i in order])
        table[order[np.searchsorted(keys, rows[:, 0])], (rows[:, 1] - first) // seconds] = rows[:, 2]
        self._series.update({link.link_key: row for link, row in zip(group, table, strict=True)})

    def latest(self, link: LinkInfo, newest: int, model: TrainedModel) -> tuple[Array, int]:
        """Return the lag window, (1, d), gaps filled with what is usual, and how many were."""
        series, window = self._series[link.link_key], model.window
        if not np.isnan(series).any():
            return series[_from_the_end(window.lags)][None, :], 0
        calendar = self._calendar(link, newest - (len(series) - 1) * link.slot_seconds, len(series))
        latest = window.latest(series, fill=model.profile.at(calendar.weekday, calendar.slot_of_day))
        return latest.window, latest.filled_lags

    def usual(self, link: LinkInfo, newest: int, model: TrainedModel) -> Array:
        """Return the profile of the slots to come."""
        calendar = self._calendar(link, newest + link.slot_seconds, HORIZONS)
        return model.profile.at(calendar.weekday, calendar.slot_of_day)

    def _calendar(self, link: LinkInfo, first: int, n: int) -> Calendar:
        key = (link.zone_name, link.slot_minutes, first, n)  # mostly the same for all links of a city
        if key not in self._calendars:
            self._calendars[key] = link.grid.calendar(first // link.slot_seconds, n, link.zone)
        return self._calendars[key]


@lru_cache
def _from_the_end(lags: tuple[int, ...]) -> NDArray[np.int64]:
    return -np.array(lags, dtype=np.int64)
