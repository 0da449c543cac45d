"""Many links with a model each, quickly: a few models are trained and copied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from sqlalchemy import Engine, insert
from threadpoolctl import threadpool_limits

from app.core.database import reading, writing
from app.core.partitions import ensure_months
from app.core.slots import zone_named
from app.counts.series import LinkSeries, as_count_series
from app.counts.tables import Count
from app.demo.city import City, sample_city
from app.links.queries import all_links
from app.links.tables import Link
from app.registry.store import place_of
from app.registry.tables import ModelVersion
from app.training.link_training import describe
from benchmarks.network_city import SavedModel, save_networks_models
from model.artifacts.link_models import save_model
from model.link_model.training import train
from model.link_model.training_plan import TrainingPlan

TRAINED = 4
TRAINED_DAYS, DAYS = 25, 40
PAST_DAYS = 28  # first day of counts before today, so that 22 days of slots can be posted
NETWORK_DAYS = 63  # the days in a network's memories, and a week before them


@dataclass(frozen=True)
class ModelCity:
    """Links with their counts, in a database."""

    link_ids: list[str]
    city: City

    @classmethod
    def build(cls, engine: Engine, store: Path, links: int, notes: Console, *, network: bool = False) -> ModelCity:
        """Store links, a day of counts and active models, on lags or of one network."""
        city = sample_city(links=TRAINED, days=NETWORK_DAYS if network else DAYS, start=_monday_before(PAST_DAYS))
        built = cls([f"L{i:04}" for i in range(links)], city)
        now = datetime.now(UTC)
        with writing(engine) as session:
            for link_id in built.link_ids:
                session.add(
                    Link(link_id=link_id, name=link_id, zone=city.zone, slot_minutes=15, created_at=now, updated_at=now)
                )
        store.mkdir(parents=True, exist_ok=True)
        with threadpool_limits(limits=1):  # threads do not speed up four small fits
            if network:
                saved = save_networks_models(city, NETWORK_DAYS, built.link_ids, store, notes)
            else:
                saved = built._models(store, notes)
        built._register(engine, saved)
        with writing(engine) as session:
            keys = {link.link_id: link.link_key for link in all_links(session)}
            names = ("link_key", "slot_start", "count", "quality")
            rows = built._counts([keys[link_id] for link_id in built.link_ids], 0, 100)
            ensure_months(session, Count.__tablename__, {row[1] for row in rows})
            session.execute(insert(Count), [dict(zip(names, row, strict=True)) for row in rows])
        return built

    def _models(self, store: Path, notes: Console) -> list[SavedModel]:
        plan, n = TrainingPlan(), TRAINED_DAYS * 96
        results, sources = [], list(self.city.counts)
        for link_id in sources:
            counts = self.city.counts[link_id][:n]
            zone = zone_named(self.city.zone)
            series = LinkSeries(link_id, self.city.grid, zone, self.city.first_slot, counts, np.zeros(n, dtype=bool))
            results.append((series, train(as_count_series(series), plan)))
        saved = []
        for i, link_id in enumerate(track(self.link_ids, "writing models", console=notes, transient=True)):
            series, result = results[i % TRAINED]
            about = describe(series, None, plan, result) | {"link_id": link_id}
            folder = store / place_of(link_id, 1)
            folder.parent.mkdir()
            fingerprint = save_model(folder, result.model, about)
            saved.append(SavedModel(fingerprint, plan.algorithm, result.model.rank, about))
        return saved

    def _register(self, engine: Engine, saved: Sequence[SavedModel]) -> None:
        now = datetime.now(UTC)
        with writing(engine) as session:
            keys = {link.link_id: link.link_key for link in all_links(session)}
            for link_id, model in zip(self.link_ids, saved, strict=True):
                session.add(
                    ModelVersion(
                        link_key=keys[link_id],
                        version=1,
                        state="active",
                        algorithm=model.algorithm,
                        folder=place_of(link_id, 1),
                        fingerprint=model.fingerprint,
                        rank=model.rank,
                        trained_from=now,
                        trained_to=now,
                        about=model.about,
                        created_at=now,
                        activated_at=now,
                    )
                )

    def _counts(self, keys: Sequence[int], first: int, n: int) -> list[tuple[int, ...]]:
        sources = list(self.city.counts.values())
        starts = [int(self.city.grid.start(self.city.first_slot + first + i).timestamp()) for i in range(n)]
        return [
            (key, start, int(np.nan_to_num(sources[j % TRAINED][first + i])), 0)
            for j, key in enumerate(keys, keys.start if isinstance(keys, range) else 0)
            for i, start in enumerate(starts)
        ]

    def rows(self, engine: Engine, links: int, first: int, n: int) -> list[tuple[int, ...]]:
        """Return counts as rows of the table."""
        with reading(engine) as session:
            keys = {link.link_id: link.link_key for link in all_links(session)}
        return self._counts([keys[link_id] for link_id in self.link_ids[:links]], first, n)

    def batch(self, links: int | range, first: int, n: int) -> bytes:
        """Return counts as the body of a POST, of the first links or of those in a range."""
        counts = self._counts(range(links) if isinstance(links, int) else links, first, n)
        written = {
            start: datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for _, start, _, _ in counts
        }
        rows = [
            {"link_id": self.link_ids[key], "slot_start": written[start], "count": count}
            for key, start, count, _ in counts
        ]
        return json.dumps({"counts": rows}).encode()


def _monday_before(days: int) -> date:
    """Return the last Monday at least ``days`` days ago."""
    then = datetime.now(UTC).date() - timedelta(days=days)
    return then - timedelta(days=then.weekday())
