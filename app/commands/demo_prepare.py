"""Getting the demo ready, with progress."""

from __future__ import annotations

from rich.markup import escape
from sqlalchemy import Engine

from app.commands.console import notes, progress_bar
from app.commands.network_progress import NetworkProgress
from app.demo.city import City
from app.demo.folder import DemoFolder, DemoSize
from app.demo.prepare import store_city, train_city

EVERY = 4  # models


def store_with_note(engine: Engine, size: DemoSize) -> City:
    """Generate the city and store its links and first days."""
    said = f"{size.links} links, {size.stored_days} days of synthetic counts"
    if not notes.is_terminal:  # where a status line would not be seen before it is over
        notes.print(f"storing {said}")
    with notes.status("the sample city comes in"):
        city = size.city()
        store_city(engine, size, city)
    if notes.is_terminal:
        notes.print(said)
    return city


def train_with_progress(engine: Engine, folder: DemoFolder, size: DemoSize, city: City) -> None:
    """Train and activate what is not yet, and say what could not be trained."""
    with progress_bar() as progress:
        bar = progress.add_task("training", total=None)

        def note(done: int, of: int) -> None:
            progress.update(bar, completed=done, total=of)
            if not notes.is_terminal and done % EVERY == 0:
                notes.print(f"training: {done} of {of} models")

        failed = train_city(engine, folder, size, city, note, NetworkProgress(progress).report)
    for reason in failed:
        notes.print(escape(f"not trained: {reason}"), style="red", soft_wrap=True)
    notes.print(f"{size.links - len(failed)} models are trained and active")
