"""``flowcast demo``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated
from urllib.error import HTTPError

import typer
from rich.markup import escape
from sqlalchemy import Engine

from app.commands.console import FAILED, INTERRUPTED, notes, out, progress_bar, refuse
from app.database import open_database
from app.demo.city import City
from app.demo.folder import DemoFolder, DemoSize
from app.demo.prepare import demo_key, next_slot, store_city, train_city
from app.demo.replay import Feed, replay
from app.demo.service_process import ServiceGone, ServiceProcess, free_port, running_service
from app.schema import upgrade_schema
from app.slots import zone_named

FASTEST = 6000.0  # slots a minute
NOTE_SECONDS = 10.0
WATCH_SECONDS = 0.5


def demo_command(
    links: Annotated[int, typer.Option(min=1, max=1000, help="Links of the sample city.")] = 12,
    days: Annotated[int, typer.Option(max=365, help="Days of counts; the last three are replayed, and more.")] = 28,
    speed: Annotated[float, typer.Option(help="Slots a minute that the replay sends.")] = 60.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any.")] = 8000,
    seconds: Annotated[
        float | None, typer.Option(envvar="DEMO_SECONDS", min=0, help="Stop by itself after so long.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of the demo; a second run goes on from there.")] = Path(".demo"),
) -> None:
    """Run Flowcast on the sample city: counts come in, forecasts and accuracy move while one looks."""
    folder = DemoFolder(data)
    with ExitStack() as stack:
        stack.enter_context(_stopped_by_signals())
        try:
            if not 0 < speed <= FASTEST:
                raise ValueError(f"speed={speed:g} is refused; it must be above 0 and at most {FASTEST:g}")
            size = DemoSize(links, days)
            listening = _checked_port(port)
            stack.enter_context(folder.held(size))
            city, key, engine = _prepared(stack, folder, size)
            service = stack.enter_context(running_service(folder.environment(), listening, folder.log))
            feed = Feed(service.address, key, service.require_alive)
            service.wait_until(feed.is_ready)
            first = next_slot(engine, city)
            engine.dispose()  # from here on the service alone has the database
            until = None if seconds is None else time.monotonic() + seconds
            with suppress(KeyboardInterrupt):  # the usual way to end a demo
                _introduce(service, key, city)
                _run(service, feed, city, first, speed, until)
        except (ValueError, OSError) as problem:
            refuse("demo", problem)
        except ServiceGone as problem:
            notes.print(f"flowcast demo: {escape(str(problem))}", style="red", soft_wrap=True)
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            notes.print("interrupted")
            raise typer.Exit(INTERRUPTED) from None
    notes.print(f"stopped; everything is in {escape(str(data))}, and the next demo goes on from there")


def _prepared(stack: ExitStack, folder: DemoFolder, size: DemoSize) -> tuple[City, str, Engine]:
    engine = open_database(folder.database_url)
    stack.callback(engine.dispose)
    with notes.status("the sample city comes in"):
        upgrade_schema(engine)
        city = size.city()
        store_city(engine, size, city)
    notes.print(f"{size.links} links, {size.stored_days} days of synthetic counts")
    with progress_bar() as progress:
        bar = progress.add_task("training", total=None)
        failed = train_city(engine, folder, size, city, lambda done, of: progress.update(bar, completed=done, total=of))
    for reason in failed:
        notes.print(escape(f"not trained: {reason}"), style="red", soft_wrap=True)
    notes.print(f"{size.links - len(failed)} models are trained and active")
    return city, demo_key(engine, folder), engine


def _introduce(service: ServiceProcess, key: str, city: City) -> None:
    link_id = city.links[0].link_id
    paths = ("/v1/forecasts", f"/v1/links/{link_id}/forecast?horizon=4", f"/v1/links/{link_id}/accuracy?window=24h")
    lines = [
        f"address  {service.address}  (API documentation: {service.address}/docs)",
        f"key      {key}",
        "try",
        *(f"  curl -H 'X-API-Key: {key}' '{service.address}{path}'" for path in paths),
    ]
    out.print(escape("\n".join(lines)), soft_wrap=True)


def _run(service: ServiceProcess, feed: Feed, city: City, first: int, speed: float, until: float | None) -> None:
    """Replay, then go on serving, until it is time or somebody stops it."""
    try:
        with notes.status("replaying") as status:
            watcher = _Watcher(feed, city)

            def note(slot: int) -> None:
                status.update(watcher.said(slot))

            used_up = replay(city, feed, first, per_minute=speed, until=until, note=note)
            if used_up:
                notes.print("the city's counts are used up; the service goes on (Ctrl-C stops it)")
            while used_up and (until is None or time.monotonic() < until):
                service.require_alive()
                time.sleep(WATCH_SECONDS)
    except HTTPError as refused:
        raise ServiceGone(f"the service refused a count with {refused.code}: {refused.read(500)!r}") from None


class _Watcher:
    """Says where the replay is and, now and then, how good the forecasts have been."""

    def __init__(self, feed: Feed, city: City) -> None:
        self._feed, self._city, self._zone = feed, city, zone_named(city.zone)
        self._asked, self._accuracy = 0.0, ""

    def said(self, slot: int) -> str:
        """Give a line for a slot; where there is no terminal it is printed every ten seconds."""
        local = self._city.grid.start(slot).astimezone(self._zone)
        if time.monotonic() > self._asked + NOTE_SECONDS:
            self._asked, self._accuracy = time.monotonic(), self._figures()
            if not notes.is_terminal:
                notes.print(f"{local:%a %d %b %H:%M}{self._accuracy}")
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


def _checked_port(port: int) -> int:
    try:
        return free_port(port)
    except OSError as problem:
        reason = (os.strerror(problem.errno) if problem.errno else str(problem)).lower()
        raise OSError(f"port {port} cannot be used: {reason}; --port names another") from None


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let the signals that end a process end the demo in order."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
