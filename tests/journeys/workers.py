"""Workers as real processes, and what they work on."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from app.counts.tables import Count
from app.database import reading, writing
from app.demo.city import City
from app.links.queries import all_links
from app.links.tables import Link
from app.retrain.request import Order, request_run
from tests.app.stored import put_rows
from tests.journeys.service import KEY

QUICK = {"lags": 4, "n_neighbors": 4, "held_out_days": 4}
PATIENCE = 200.0  # seconds; a worker is nice to all others, and may wait for long where these are busy


def put_city(engine: Engine, city: City, *, up_to: int | None = None) -> None:
    """Store a city's links and counts, moved by whole days to end on the day before ``up_to``, in Unix seconds."""
    now = datetime.now(UTC)
    end = int(city.grid.start(city.first_slot + len(next(iter(city.counts.values())))).timestamp())
    moved = 0 if up_to is None else (up_to - end) // 86400 * 86400
    with writing(engine) as session:
        for link_id in city.counts:
            session.add(
                Link(link_id=link_id, name=link_id, zone=city.zone, slot_minutes=15, created_at=now, updated_at=now)
            )
        session.flush()
        keys = {link.link_id: link.link_key for link in all_links(session)}
        rows = [
            {
                "link_key": keys[link_id],
                "slot_start": int(city.grid.start(city.first_slot + i).timestamp()) + moved,
                "count": int(n),
                "quality": 0,
            }
            for link_id, counts in city.counts.items()
            for i, n in enumerate(counts)
            if n == n
        ]
        put_rows(session, Count, rows)


def request(engine: Engine, parameters: dict[str, Any], algorithm: str = "KR", activate: str = "always") -> int:
    with writing(engine) as session:
        order = Order(algorithm, parameters, activate, "tests")
        return request_run(session, all_links(session), order)[0].id


def start_worker(
    url: str, folder: Path, program: Sequence[str] = ("-m", "app"), **settings: str
) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "FLOWCAST_DATABASE_URL": url,
        "FLOWCAST_MODEL_STORE": str(folder / "models"),
        "FLOWCAST_ADMIN_KEY": KEY,
        "FLOWCAST_CLOCK": "feed",
        "FLOWCAST_RETRAIN_JOBS": "1",
        **settings,
    }
    command = [sys.executable, *program, "worker"]
    with (folder / "worker.log").open("ab") as log:  # a session of its own, as beside a service: its share of the cores
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def rows(engine: Engine, question: str, **given: object) -> list[tuple[Any, ...]]:
    with reading(engine) as session:
        return [tuple(row) for row in session.execute(text(question), given)]


def wait_for(holds: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)
