"""Where a demo lies and how large it is."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from app.core.slots import zone_named
from app.demo.city import MONDAY, City, sample_city
from app.registry.store import ModelStore

REPLAYED_DAYS = 3  # of the days asked for
FURTHER_DAYS = 56  # beyond them; at a slot a second an hour and a half of replay
LEAST_DAYS = 14


@dataclass(frozen=True)
class DemoSize:
    """How large the demo is and when it begins; the same size and day give the same counts."""

    links: int = 12
    days: int = 28
    seed: int = 0
    start: date = MONDAY

    def __post_init__(self) -> None:
        if self.days < LEAST_DAYS:
            raise ValueError(f"days={self.days} is refused; it must be at least {LEAST_DAYS}, or nothing can be learnt")

    @property
    def stored_days(self) -> int:
        """Days of counts that are there before the replay begins."""
        return self.days - REPLAYED_DAYS

    def stored_slots(self, city: City) -> int:
        """Slots of those days."""
        first_replayed = self.start + timedelta(days=self.stored_days)
        return city.grid.local_day(first_replayed, zone_named(city.zone)).start - city.first_slot

    def city(self) -> City:
        """Generate the city, with the days that the replay goes on to."""
        return sample_city(links=self.links, days=self.days + FURTHER_DAYS, seed=self.seed, start=self.start)


@dataclass(frozen=True)
class DemoFolder:
    """Where everything of a demo lies; deleting it forgets the demo. Its models may be kept with a service's own."""

    root: Path
    models: ModelStore | None = None

    @property
    def database_url(self) -> str:
        """The embedded database."""
        return f"sqlite:///{self.root.absolute() / 'flowcast.db'}"

    @property
    def model_store(self) -> ModelStore:
        """The artifacts of the trained models."""
        return self.models or ModelStore(self.root.absolute() / "models")

    @property
    def log(self) -> Path:
        """What the service says."""
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
        """Keep the folder for one demo at a time, of one size."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileExistsError(f"{self.root} is in use by another demo; --data names another folder") from None
            self._check_size(size)
            yield

    def _check_size(self, size: DemoSize) -> None:
        file, wanted = self.root / "demo.json", {"links": size.links, "days": size.days, "seed": size.seed}
        there = json.loads(file.read_text()) if file.exists() else wanted
        if there != wanted:
            raise FileExistsError(
                f"{self.root} holds a demo of links={there.get('links')} and days={there.get('days')}; "
                "ask for the same, delete it, or name another folder with --data"
            )
        file.write_text(json.dumps(wanted))
