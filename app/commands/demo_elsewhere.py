"""``flowcast demo --service``: the sample city in a service that runs already, with its database and model store."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine

from app.commands.console import notes, refuse
from app.commands.current_schema import current_database
from app.commands.demo_prepare import store_with_note, train_with_progress
from app.commands.demo_watch import replay_watched
from app.commands.heartbeat import Heartbeat
from app.commands.service import settings_or_refuse
from app.core.database import reading
from app.core.slots import zone_named
from app.counts.queries import stored_span
from app.demo.city import MONDAY, ZONE
from app.demo.folder import DemoFolder, DemoSize
from app.demo.prepare import next_slot
from app.demo.replay import Feed
from app.links.queries import all_links
from app.registry.open_store import open_store
from app.settings import ClockKind, Settings

CATCH_UP = 6000.0  # slots a minute, of those that are over


def replay_elsewhere(address: str, size: DemoSize, speed: float, seconds: float | None, data: Path) -> None:
    """Store and train the city in the database of the settings, then send its slots to the service.

    A service whose clock is the feed has them at ``speed``. One whose clock is the wall's has each when it is over,
    in a city whose first days end today.
    """
    settings = settings_or_refuse("demo")
    key = _key(settings)
    live = settings.clock is ClockKind.WALL
    folder = DemoFolder(data, models=open_store(settings))
    with Heartbeat() as heart:
        with folder.held(size), current_database("demo", settings) as engine:
            size = replace(size, start=_stored_first_day(engine, size) or _first_day(size, live=live))
            city = store_with_note(engine, size, heart)
            train_with_progress(engine, folder, size, city, heart)
            first = next_slot(engine, city)
        feed = Feed(address, key)
        until = None if seconds is None else time.monotonic() + seconds
        pace = "each slot when it is over" if live else f"{speed:g} slots a minute"
        notes.print(f"replaying to {address}, {pace}")
        used_up = replay_watched(feed, city, first, heart, speed=CATCH_UP if live else speed, until=until, live=live)
    if used_up:
        notes.print("the city's counts are used up; the service goes on")


def _key(settings: Settings) -> str:
    if settings.admin_key is None:
        refuse("demo", "FLOWCAST_ADMIN_KEY is not set; it must be the service's, for the replay to post counts")
    return settings.admin_key.get_secret_value()


def _first_day(size: DemoSize, *, live: bool) -> date:
    """Move the stored days of a new city to end yesterday where the clock is wall time."""
    if not live:
        return MONDAY
    return datetime.now(zone_named(ZONE)).date() - timedelta(days=size.stored_days)


def _stored_first_day(engine: Engine, size: DemoSize) -> date | None:
    """Return the day that a stored city began on; None where there is none yet."""
    ids = {link.link_id for link in size.city().links}
    with reading(engine) as session:
        spans = [stored_span(session, link.link_key) for link in all_links(session) if link.link_id in ids]
    oldest = min((first for first, _ in spans if first is not None), default=None)
    return None if oldest is None else datetime.fromtimestamp(oldest, zone_named(ZONE)).date()
