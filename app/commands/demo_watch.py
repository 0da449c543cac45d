"""The demo's replay, and what is shown while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.error import HTTPError

from app.commands.console import StatusLines, notes
from app.core.slots import zone_named
from app.demo.city import City
from app.demo.replay import Feed, replay
from app.demo.service_process import ServiceGone

NOTE_SECONDS = 10.0
WATCH_SECONDS = 0.5


def replay_watched(
    feed: Feed,
    city: City,
    first: int,
    lines: StatusLines,
    *,
    speed: float,
    until: float | None = None,
    live: bool = False,
) -> bool:
    """Replay, and say where it is; return whether the city's counts are used up."""
    lines.begin("replaying")
    try:
        with notes.status("replaying") as status:
            watcher = _Watcher(feed, city)

            def note(slot: int) -> None:
                message = watcher.message(slot)
                status.update(message)
                lines.update(message)

            return replay(city, feed, first, per_minute=speed, until=until, note=note, live=live)
    except HTTPError as refused:
        raise ServiceGone(f"the service refused a count with {refused.code}: {refused.read(500)!r}") from None


def stay(until: float | None, still_there: Callable[[], None], lines: StatusLines) -> None:
    """Go on serving after the replay, until it is time or somebody stops it."""
    message = "the city's counts are used up; the service goes on (Ctrl-C stops it)"
    lines.begin(message)
    with notes.status(message):
        while until is None or time.monotonic() < until:
            still_there()
            time.sleep(WATCH_SECONDS)


class _Watcher:
    """Says where the replay is and, now and then, how good the forecasts have been."""

    def __init__(self, feed: Feed, city: City) -> None:
        self._feed, self._city, self._zone = feed, city, zone_named(city.zone)
        self._asked, self._accuracy = 0.0, ""

    def message(self, slot: int) -> str:
        """Return a line for a slot."""
        local = self._city.grid.start(slot).astimezone(self._zone)
        if time.monotonic() > self._asked + NOTE_SECONDS:
            self._asked, self._accuracy = time.monotonic(), self._figures()
        return f"replaying {local:%a %d %b %H:%M}{self._accuracy}"

    def _figures(self) -> str:
        try:
            told = self._feed.get("/v1/accuracy?window=24h&limit=1")
        except OSError:  # it may be better next time, and the replay sees to it if not
            return ""
        if told.get("rmse") is None:
            return ", no accuracy yet"
        skill = told.get("skill_profile")
        beside = "" if skill is None else f", skill against the profile {skill:+.0%}"
        return f", RMSE of the last 24 h {told['rmse']:.1f}{beside}"
