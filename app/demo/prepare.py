"""A demo's folder, and its preparation: database, sample city, first counts, trained models, a key."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

import numpy as np
from joblib.externals.loky import get_reusable_executor
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.core.database import reading, writing
from app.core.slots import zone_named
from app.counts.ingest import store_counts
from app.counts.queries import newest_slots
from app.counts.series import LinkSeries
from app.demo.city import MONDAY, City, links_geojson, sample_city
from app.keys.cache import hashed, key_id_in
from app.keys.issue import issue_key, write_secret
from app.keys.queries import key_with_id
from app.keys.tables import ALL_SCOPES
from app.links.queries import LinkInfo, all_links
from app.links.schemas import LinkIn
from app.links.store_links import store_links
from app.registry.activate import activate
from app.registry.queries import active_models
from app.registry.register import register_model
from app.registry.store import ModelStore
from app.training.aligned_counts import LinkTopology

if TYPE_CHECKING:
    from app.training.network_stage import ReportProgress

REPLAYED_DAYS = 3  # of the days asked for
FURTHER_DAYS = 56  # beyond them; at a slot a second an hour and a half of replay
LEAST_DAYS = 14
HELD_OUT = 0.25  # of the stored days, and a week at most
NO_SPACE = os.strerror(ENOSPC)


@dataclass(frozen=True)
class DemoSize:
    """The size of the demo and its first day; the same size and day give the same counts."""

    links: int = 12
    days: int = 28
    seed: int = 0
    start: date = MONDAY

    def __post_init__(self) -> None:
        if self.days < LEAST_DAYS:
            raise ValueError(f"days={self.days} is refused; it must be at least {LEAST_DAYS}, or nothing can be learnt")

    @property
    def stored_days(self) -> int:
        """Return the days of counts that are stored before the replay begins."""
        return self.days - REPLAYED_DAYS

    def stored_slots(self, city: City) -> int:
        """Return the number of slots of those days."""
        first_replayed = self.start + timedelta(days=self.stored_days)
        return city.grid.local_day(first_replayed, zone_named(city.zone)).start - city.first_slot

    def city(self) -> City:
        """Generate the city, with the days that the replay goes on to."""
        return sample_city(links=self.links, days=self.days + FURTHER_DAYS, seed=self.seed, start=self.start)


@dataclass(frozen=True)
class DemoFolder:
    """Folder of a demo; deleting it deletes the demo. Its models may be kept in the store of another service."""

    root: Path
    models: ModelStore | None = None

    @property
    def database_url(self) -> str:
        """Return the address of the embedded database."""
        return f"sqlite:///{self.root.absolute() / 'flowcast.db'}"

    @property
    def model_store(self) -> ModelStore:
        """Return the store of the trained models."""
        return self.models or ModelStore(self.root.absolute() / "models")

    @property
    def log(self) -> Path:
        """Return the file of the service's log."""
        return self.root / "service.log"

    def environment(self) -> dict[str, str]:
        """Return the environment of the demo's service; settings for another service do not reach it."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("FLOWCAST_")}
        return others | {
            "FLOWCAST_DATABASE_URL": self.database_url,
            "FLOWCAST_MODEL_STORE": str(self.model_store.root),
            "FLOWCAST_ADMIN_KEY_FILE": str(self.root.absolute() / "admin.key"),
            "FLOWCAST_CLOCK": "feed",
        }

    @contextmanager
    def held(self, size: DemoSize) -> Iterator[None]:
        """Lock the folder for one demo at a time, of one size."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileExistsError(f"{self.root} is in use by another demo; --data names another folder") from None
            file, wanted = self.root / "demo.json", {"links": size.links, "days": size.days, "seed": size.seed}
            known = json.loads(file.read_text()) if file.exists() else wanted
            if known != wanted:
                raise FileExistsError(
                    f"{self.root} has a demo of links={known.get('links')} and days={known.get('days')}; "
                    "use the same, delete the folder, or name another one with --data"
                )
            file.write_text(json.dumps(wanted))
            yield


def store_city(engine: Engine, size: DemoSize, city: City) -> None:
    """Store the links, and the counts of all days but those that are replayed; what is stored already stays."""
    features = links_geojson(city)["features"]
    with writing(engine) as session:
        store_links(
            session, [LinkIn.model_validate(one["properties"] | {"geometry": one["geometry"]}) for one in features]
        )
        links = _links_of(session, city)
        n = size.stored_slots(city)
        series = [city.counts[link.link_id][:n] for link in links]
        known = [np.flatnonzero(~np.isnan(counts)) for counts in series]
        counts = np.concatenate([one[rows] for one, rows in zip(series, known, strict=True)]).astype(np.int64)
        slots = (city.first_slot + np.concatenate(known)) * 60 * city.grid.slot_minutes
        keys = np.repeat([link.link_key for link in links], [len(rows) for rows in known])
        store_counts(session, links, np.column_stack([keys, slots, counts, np.zeros_like(counts)]))


def train_city(
    engine: Engine,
    folder: DemoFolder,
    size: DemoSize,
    city: City,
    note: Callable[[int, int], None],
    report: ReportProgress | None = None,
) -> list[str]:
    """Train and activate the best model for every link that has none; return why links could not be trained.

    ``note`` is called with how many of how many links are trained, ``report`` with the progress of the network.
    """
    with reading(engine) as session:
        links = _links_of(session, city)
        active = active_models(session, [link.link_key for link in links])
    waiting = {link.link_id: link for link in links if link.link_key not in active}
    if not waiting:
        return []
    # Not at the top: a demo that goes on from where it was trains nothing and should not wait for these to load.
    from app.training.network_stage import BEST, NetworkTraining
    from app.training.train_links import train_links

    how = NetworkTraining.of(BEST, {"held_out_days": max(1, min(7, int(HELD_OUT * size.stored_days)))})
    output, store = folder.root / "training", folder.model_store
    series = [_series(city, link, size.stored_slots(city)) for link in waiting.values()]
    beside = [_series(city, link, size.stored_slots(city)) for link in links if link.link_id not in waiting]
    topology = {link.link_id: LinkTopology(link.geometry, tuple(link.upstream)) for link in city.links}
    failed = []
    note(0, len(waiting))
    with catch_warnings():
        # joblib's advice on a loop that is left early, as a full disk makes this one.
        filterwarnings("ignore", message=".*tasks which were still being processed")
        try:
            trained = train_links(series, output, how, topology=topology, beside=beside, resume=True, report=report)
            for done, outcome in enumerate(trained, 1):
                if outcome.state != "failed":
                    link = waiting[outcome.link_id]
                    for artifact in outcome.artifacts(output).values():
                        with writing(engine) as session:
                            activate(session, store, link, register_model(session, store, link, artifact).version)
                elif NO_SPACE in outcome.reason:  # the next link would fail as well
                    raise OSError(ENOSPC, NO_SPACE, str(output))
                else:
                    failed.append(f"{outcome.link_id}: {outcome.reason}")
                note(done, len(waiting))
        finally:
            get_reusable_executor().shutdown(wait=True, kill_workers=True)  # they would wait for more work for minutes
    shutil.rmtree(output, ignore_errors=True)
    return failed


def demo_key(engine: Engine, folder: DemoFolder) -> str:
    """Return the demo's key: the one of an earlier run, or a new one."""
    file = folder.root / "demo.key"
    with suppress(OSError):
        key = file.read_text().strip()
        with reading(engine) as session:
            row = key_with_id(session, key_id_in(key) or "")
        if row is not None and row.hash == hashed(key) and row.revoked_at is None:
            return key
    with writing(engine) as session:
        key = issue_key(session, name="demo", scopes=ALL_SCOPES).key
        write_secret(file, key)
    return key


def next_slot(engine: Engine, city: City) -> int:
    """Return the number of the slot that the replay goes on with."""
    with reading(engine) as session:
        newest = newest_slots(session, [link.link_key for link in _links_of(session, city)])
    return max(newest.values()) // (60 * city.grid.slot_minutes) + 1


def _links_of(session: Session, city: City) -> list[LinkInfo]:
    """Return the city's links in the order of the database, which may hold others as well."""
    return [link for link in all_links(session) if link.link_id in city.counts]


def _series(city: City, link: LinkInfo, n: int) -> LinkSeries:
    counts = city.counts[link.link_id][:n]
    return LinkSeries(link.link_id, city.grid, link.zone, city.first_slot, counts, np.zeros(n, dtype=np.bool_))
