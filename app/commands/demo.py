"""``flowcast demo``."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Annotated
from urllib.error import HTTPError

import typer
from rich.markup import escape
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.commands.console import (
    FAILED,
    NETWORK_PARTS,
    NetworkProgress,
    StatusLines,
    notes,
    out,
    progress_bar,
    refuse,
)
from app.commands.database import current_database, first_line, read_settings
from app.core.database import open_database, reading
from app.core.schema import upgrade_schema
from app.core.slots import zone_named
from app.counts.queries import stored_span
from app.demo.city import ZONE, City
from app.demo.prepare import DemoFolder, DemoSize, demo_key, next_slot, store_city, train_city
from app.demo.replay import FeedClient, replay
from app.demo.service_process import ServiceGone, free_port, running_service
from app.links.queries import all_links
from app.registry.store import open_store
from app.settings import ClockKind

FASTEST = 6000.0  # slots a minute
NEEDED_MEGABYTES = 100
FULL = "disk is full"  # SQLite's message
ACCURACY_SECONDS = 10.0
POLL_SECONDS = 0.5


def demo_command(
    links: Annotated[int, typer.Option(min=1, max=1000, help="Links of the sample city.")] = 12,
    days: Annotated[int, typer.Option(max=365, help="Days of counts, of which the last three are replayed.")] = 28,
    speed: Annotated[float, typer.Option(help="Slots per minute that the replay sends, above 0.")] = 60.0,
    port: Annotated[
        int, typer.Option(envvar="DEMO_PORT", min=0, max=65535, help="Port to listen on; 0 for any.")
    ] = 8000,
    seconds: Annotated[
        float | None, typer.Option(envvar="DEMO_SECONDS", min=0, help="Stop after so many seconds.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of the demo; a second run continues from there.")] = Path(".demo"),
    service: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Start no service: store the city in the database of the settings, and replay to this one.",
        ),
    ] = None,
) -> None:
    """Run Flowcast on the sample city: replay its counts, so that forecasts and accuracy move.

    Example:

        flowcast demo --links 12 --speed 60 --port 8000
    """
    no_space = (
        f"no space is left on the disk of {data}; free {NEEDED_MEGABYTES} MB there, or --data names another folder"
    )
    with _stopped_by_signals():
        try:
            if not 0 < speed <= FASTEST:
                raise ValueError(f"speed={speed:g} is refused; it must be above 0 and at most {FASTEST:g}")
            size = DemoSize(links, days)
            if service is None:
                _run_own_service(DemoFolder(data), size, speed, port, seconds)
            else:
                with suppress(KeyboardInterrupt):
                    _replay_to(service.rstrip("/"), size, speed, seconds, data)
        except (ValueError, OSError) as problem:
            full = isinstance(problem, OSError) and problem.errno in (ENOSPC, EDQUOT)
            refuse("demo", no_space if full else problem)
        except SQLAlchemyError as problem:
            reason = first_line(problem)
            refuse("demo", no_space if FULL in reason else reason, FAILED)
        except ServiceGone as problem:
            refuse("demo", problem, FAILED)
        except KeyboardInterrupt:
            notes.print("interrupted")
            raise
    if service is None:
        notes.print(f"stopped; everything is in {escape(str(data))}, and the next demo continues from there")


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Interrupt the demo, as Ctrl-C does, on the signals that end a process."""
    ends = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_own_service(folder: DemoFolder, size: DemoSize, speed: float, port: int, seconds: float | None) -> None:
    """Start a service of the demo's own, and replay to it."""
    with ExitStack() as stack:
        port = _checked_port(port)
        _check_space(folder.root)
        stack.enter_context(folder.held(size))
        lines = stack.enter_context(StatusLines())
        lines.begin("preparing the database")
        engine = open_database(folder.database_url)
        stack.callback(engine.dispose)
        upgrade_schema(engine)
        city = _store_and_train(engine, folder, size, lines)
        key = demo_key(engine, folder)
        lines.begin("starting the service")
        with notes.status("the service starts"):
            service = stack.enter_context(running_service(folder.environment(), port, folder.log))
        first = next_slot(engine, city)
        engine.dispose()  # from here on the service alone has the database
        feed = FeedClient(service.address, key, service.require_alive)
        until = None if seconds is None else time.monotonic() + seconds
        with suppress(KeyboardInterrupt):  # the usual way to end a demo
            _introduce(service.address, key, city)
            if not _replay(feed, city, first, lines, speed=speed, until=until):
                return
            message = "all counts of the city were posted; the service continues to run (Ctrl-C stops it)"
            lines.begin(message)
            with notes.status(message):
                while until is None or time.monotonic() < until:
                    service.require_alive()
                    time.sleep(POLL_SECONDS)


def _replay_to(address: str, size: DemoSize, speed: float, seconds: float | None, data: Path) -> None:
    """Store and train the city in the database of the settings, then send its slots to the service.

    A service whose clock is the feed has them at ``speed``. One whose clock is the wall's has each when it is over,
    in a city whose first days end today.
    """
    settings = read_settings("demo")
    if settings.admin_key is None:
        refuse(
            "demo",
            "FLOWCAST_ADMIN_KEY is not set; set it to the admin key of the service, because the replay posts counts",
        )
    live = settings.clock is ClockKind.WALL
    folder = DemoFolder(data, models=open_store(settings))
    with StatusLines() as lines:
        with folder.held(size), current_database("demo", settings) as engine:
            size = _starting(engine, size, live=live)
            city = _store_and_train(engine, folder, size, lines)
            first = next_slot(engine, city)
        feed = FeedClient(address, settings.admin_key.get_secret_value())
        until = None if seconds is None else time.monotonic() + seconds
        pace = "each slot when it is over" if live else f"{speed:g} slots a minute"
        notes.print(f"replaying to {address}, {pace}")
        if _replay(feed, city, first, lines, speed=FASTEST if live else speed, until=until, live=live):
            notes.print("all counts of the city were posted; the service continues to run")


def _starting(engine: Engine, size: DemoSize, *, live: bool) -> DemoSize:
    """Return the size with the first day of a stored city; a new one ends its stored days yesterday if it is live."""
    ids = {link.link_id for link in size.city().links}
    zone = zone_named(ZONE)
    with reading(engine) as session:
        spans = [stored_span(session, link.link_key) for link in all_links(session) if link.link_id in ids]
    if begun := [first for first, _ in spans if first is not None]:
        return replace(size, start=datetime.fromtimestamp(min(begun), zone).date())
    return replace(size, start=datetime.now(zone).date() - timedelta(days=size.stored_days)) if live else size


def _store_and_train(engine: Engine, folder: DemoFolder, size: DemoSize, lines: StatusLines) -> City:
    """Store the city's links and first days, train and activate what is not yet, and print what could not be."""
    size_text = f"{size.links} links, {size.stored_days} days of synthetic counts"
    lines.begin(f"storing {size_text}")
    with notes.status("the sample city comes in"):
        city = size.city()
        store_city(engine, size, city)
    if notes.is_terminal:
        notes.print(size_text)
    lines.begin("training")
    with progress_bar() as progress:
        bar = progress.add_task("training", total=None)
        network = NetworkProgress(progress)

        def note(done: int, of: int) -> None:
            progress.update(bar, completed=done, total=of)
            lines.update(f"training: {done} of {of} models")

        def report(part: str, done: int, of: int) -> None:
            network.report(part, done, of)
            lines.update(f"network: {NETWORK_PARTS[part]}, {done + 1} of {of}")

        failed = train_city(engine, folder, size, city, note, report)
    for reason in failed:
        notes.print(escape(f"not trained: {reason}"), style="red", soft_wrap=True)
    notes.print(f"{size.links - len(failed)} models are trained and active")
    return city


def _introduce(address: str, key: str, city: City) -> None:
    link_id = city.links[0].link_id
    paths = ("/v1/forecasts", f"/v1/links/{link_id}/forecast?horizon=4", f"/v1/links/{link_id}/accuracy?window=24h")
    lines = [
        f"address  {address}  (the operators' page; API documentation: {address}/docs)",
        f"key      {key}",
        "try",
        *(f"  curl -H 'X-API-Key: {key}' '{address}{path}'" for path in paths),
    ]
    out.print(escape("\n".join(lines)), soft_wrap=True)


def _replay(
    feed: FeedClient,
    city: City,
    first: int,
    lines: StatusLines,
    *,
    speed: float,
    until: float | None,
    live: bool = False,
) -> bool:
    """Replay, and show the slot and now and then the accuracy; return whether the city's counts are used up."""
    zone = zone_named(city.zone)
    accuracy, next_reading = "", time.monotonic()

    def note(slot: int) -> None:
        nonlocal accuracy, next_reading
        if time.monotonic() >= next_reading:
            accuracy, next_reading = _accuracy(feed), time.monotonic() + ACCURACY_SECONDS
        message = f"replaying {city.grid.start(slot).astimezone(zone):%a %d %b %H:%M}{accuracy}"
        status.update(message)
        lines.update(message)

    lines.begin("replaying")
    try:
        with notes.status("replaying") as status:
            return replay(city, feed, first, per_minute=speed, until=until, note=note, live=live)
    except HTTPError as refused:
        raise ServiceGone(f"the service refused a count with {refused.code}: {refused.read(500)!r}") from None


def _accuracy(feed: FeedClient) -> str:
    try:
        found = feed.request("/v1/accuracy?window=24h&limit=1")
    except OSError:  # the next attempt may succeed; if the service is gone, the replay fails
        return ""
    if found.get("rmse") is None:
        return ", no accuracy yet"
    skill = found.get("skill_profile")
    text = "" if skill is None else f", skill against the profile {skill:+.0%}"
    return f", RMSE of the last 24 h {found['rmse']:.1f}{text}"


def _check_space(root: Path) -> None:
    """Raise before the work begins where the disk has too little space."""
    existing = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.exists())
    if shutil.disk_usage(existing).free < NEEDED_MEGABYTES << 20:
        raise OSError(ENOSPC, os.strerror(ENOSPC), str(root))


def _checked_port(port: int) -> int:
    try:
        return free_port(port)
    except OSError as problem:
        reason = (os.strerror(problem.errno) if problem.errno else str(problem)).lower()
        raise OSError(f"port {port} cannot be used: {reason}; --port or DEMO_PORT names another") from None
