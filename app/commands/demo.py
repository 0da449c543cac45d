"""``flowcast demo``."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.markup import escape
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.commands.console import FAILED, INTERRUPTED, notes, out, refuse
from app.commands.demo_elsewhere import replay_elsewhere
from app.commands.demo_prepare import store_with_note, train_with_progress
from app.commands.demo_watch import replay_watched, stay
from app.commands.heartbeat import Heartbeat
from app.core.database import open_database
from app.core.schema import upgrade_schema
from app.demo.city import City
from app.demo.folder import DemoFolder, DemoSize
from app.demo.prepare import demo_key, next_slot
from app.demo.replay import Feed
from app.demo.service_process import ServiceGone, ServiceProcess, free_port, running_service

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
