"""Getting the demo ready, with progress."""

from __future__ import annotations

from rich.markup import escape
from sqlalchemy import Engine

from app.commands.console import notes, progress_bar
from app.commands.heartbeat import Heartbeat
from app.commands.network_progress import WORDS, NetworkProgress
from app.demo.city import City
from app.demo.folder import DemoFolder, DemoSize
from app.demo.prepare import store_city, train_city


def store_with_note(engine: Engine, size: DemoSize, heart: Heartbeat) -> City:
    """Generate the city and store its links and first days."""
    said = f"{size.links} links, {size.stored_days} days of synthetic counts"
    heart.begin(f"storing {said}")
    with notes.status("the sample city comes in"):
        city = size.city()
        store_city(engine, size, city)
    if notes.is_terminal:
        notes.print(said)
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
