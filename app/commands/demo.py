"""``flowcast demo``."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime, timedelta
from errno import EDQUOT, ENOSPC
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.markup import escape
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.commands.console import FAILED, INTERRUPTED, notes, out, progress_bar, refuse
from app.commands.demo_watch import replay_watched, stay
from app.commands.progress import WORDS, Heartbeat, NetworkProgress
from app.commands.service import current_database, settings_or_refuse
from app.core.database import open_database, reading
from app.core.schema import upgrade_schema
from app.core.slots import zone_named
from app.counts.queries import stored_span
from app.demo.city import MONDAY, ZONE, City
from app.demo.folder import DemoFolder, DemoSize
from app.demo.prepare import demo_key, next_slot, store_city, train_city
from app.demo.replay import Feed
from app.demo.service_process import ServiceGone, ServiceProcess, free_port, running_service
from app.links.queries import all_links
from app.registry.store import open_store
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


def store_with_note(engine: Engine, size: DemoSize, heart: Heartbeat) -> City:
    """Generate the city and store its links and first days."""
    size_text = f"{size.links} links, {size.stored_days} days of synthetic counts"
    heart.begin(f"storing {size_text}")
    with notes.status("the sample city comes in"):
        city = size.city()
        store_city(engine, size, city)
    if notes.is_terminal:
        notes.print(size_text)
    return city


def train_with_progress(engine: Engine, folder: DemoFolder, size: DemoSize, city: City, heart: Heartbeat) -> None:
    """Train and activate what is not yet, and say what could not be trained."""
    heart.begin("training")
    with progress_bar() as progress:
        bar = progress.add_task("training", total=None)

        def note(done: int, of: int) -> None:
            progress.update(bar, completed=done, total=of)
            heart.update(f"training: {done} of {of} models")

        bars = NetworkProgress(progress)

        def report(part: str, done: int, of: int) -> None:
            bars.report(part, done, of)
            heart.update(f"network: {WORDS.get(part, part)}, {done + 1} of {of}")

        failed = train_city(engine, folder, size, city, note, report)
    for reason in failed:
        notes.print(escape(f"not trained: {reason}"), style="red", soft_wrap=True)
    notes.print(f"{size.links - len(failed)} models are trained and active")


FASTEST = 6000.0  # slots a minute
NEEDED_MEGABYTES = 100
FULL = "disk is full"  # SQLite's words


def demo_command(
    links: Annotated[int, typer.Option(min=1, max=1000, help="Links of the sample city.")] = 12,
    days: Annotated[int, typer.Option(max=365, help="Days of counts; the last three are replayed, and more.")] = 28,
    speed: Annotated[float, typer.Option(help="Slots a minute that the replay sends.")] = 60.0,
    port: Annotated[
        int, typer.Option(envvar="DEMO_PORT", min=0, max=65535, help="Port to listen on; 0 for any.")
    ] = 8000,
    seconds: Annotated[
        float | None, typer.Option(envvar="DEMO_SECONDS", min=0, help="Stop by itself after so long.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of the demo; a second run goes on from there.")] = Path(".demo"),
    service: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Start no service: store the city by the settings, and replay to this one."),
    ] = None,
) -> None:
    """Run Flowcast on the sample city: counts come in, forecasts and accuracy move while one looks."""
    with _stopped_by_signals():
        try:
            if not 0 < speed <= FASTEST:
                raise ValueError(f"speed={speed:g} is refused; it must be above 0 and at most {FASTEST:g}")
            size = DemoSize(links, days)
            if service is None:
                _replay_here(DemoFolder(data), size, speed, port, seconds)
            else:
                with suppress(KeyboardInterrupt):
                    replay_elsewhere(service.rstrip("/"), size, speed, seconds, data)
        except (ValueError, OSError) as problem:
            full = isinstance(problem, OSError) and problem.errno in (ENOSPC, EDQUOT)
            refuse("demo", _no_space(data) if full else problem)
        except SQLAlchemyError as problem:
            reason = str(getattr(problem, "orig", None) or problem).splitlines()[0]
            _fail(_no_space(data) if FULL in reason else reason)
        except ServiceGone as problem:
            _fail(str(problem))
        except KeyboardInterrupt:
            notes.print("interrupted")
            raise typer.Exit(INTERRUPTED) from None
    if service is None:
        notes.print(f"stopped; everything is in {escape(str(data))}, and the next demo goes on from there")


def _replay_here(folder: DemoFolder, size: DemoSize, speed: float, port: int, seconds: float | None) -> None:
    """Start a service of the demo's own, and replay to it."""
    with ExitStack() as stack:
        listening = _checked_port(port)
        _check_space(folder.root)
        stack.enter_context(folder.held(size))
        heart = stack.enter_context(Heartbeat())
        city, key, engine = _prepared(stack, folder, size, heart)
        heart.begin("starting the service")
        with notes.status("the service starts"):
            service = stack.enter_context(running_service(folder.environment(), listening, folder.log))
            feed = Feed(service.address, key, service.require_alive)
            service.wait_until(feed.is_ready)
        first = next_slot(engine, city)
        engine.dispose()  # from here on the service alone has the database
        until = None if seconds is None else time.monotonic() + seconds
        with suppress(KeyboardInterrupt):  # the usual way to end a demo
            _introduce(service, key, city)
            if replay_watched(feed, city, first, heart, speed=speed, until=until):
                stay(until, service.require_alive, heart)


def _prepared(stack: ExitStack, folder: DemoFolder, size: DemoSize, heart: Heartbeat) -> tuple[City, str, Engine]:
    heart.begin("preparing the database")
    engine = open_database(folder.database_url)
    stack.callback(engine.dispose)
    upgrade_schema(engine)
    city = store_with_note(engine, size, heart)
    train_with_progress(engine, folder, size, city, heart)
    return city, demo_key(engine, folder), engine


def _introduce(service: ServiceProcess, key: str, city: City) -> None:
    link_id = city.links[0].link_id
    paths = ("/v1/forecasts", f"/v1/links/{link_id}/forecast?horizon=4", f"/v1/links/{link_id}/accuracy?window=24h")
    lines = [
        f"address  {service.address}  (the operators' page; API documentation: {service.address}/docs)",
        f"key      {key}",
        "try",
        *(f"  curl -H 'X-API-Key: {key}' '{service.address}{path}'" for path in paths),
    ]
    out.print(escape("\n".join(lines)), soft_wrap=True)


def _fail(problem: str) -> NoReturn:
    notes.print(f"flowcast demo: {escape(problem)}", style="red", soft_wrap=True)
    raise typer.Exit(FAILED) from None


def _no_space(data: Path) -> str:
    return f"no space is left on the disk of {data}; free {NEEDED_MEGABYTES} MB there, or --data names another folder"


def _check_space(root: Path) -> None:
    """Raise before the work begins where the disk has too little space."""
    there = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.exists())
    if shutil.disk_usage(there).free < NEEDED_MEGABYTES << 20:
        raise OSError(ENOSPC, os.strerror(ENOSPC), str(root))


def _checked_port(port: int) -> int:
    try:
        return free_port(port)
    except OSError as problem:
        reason = (os.strerror(problem.errno) if problem.errno else str(problem)).lower()
        raise OSError(f"port {port} cannot be used: {reason}; --port or DEMO_PORT names another") from None


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """End the demo in order on the signals that end a process."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
