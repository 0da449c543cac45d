"""Checks that everything that was acknowledged is stored, in the database itself and over the API."""

from __future__ import annotations

import os
import time
from calendar import timegm
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.core.database import open_database
from app.registry.cleanup import LEFT_AFTER_SECONDS, sweep_store
from app.registry.store import ModelStore
from benchmarks.fault_city import FaultCity
from benchmarks.fault_clients import FIRST_SLOT, SLOT_SECONDS, CountFeed, ModelSwapper, RetrainRequester, slot_name

Place = tuple[str, int]  # a link and a slot's number


@dataclass
class Findings:
    """Everything that is wrong; all fields are empty if nothing is."""

    lost: list[Place] = field(default_factory=list)
    doubled: list[Place] = field(default_factory=list)  # stored without an acknowledgement, or returned twice
    corrected: list[Place] = field(default_factory=list)  # their history differs from the acknowledged corrections
    wrong: dict[str, int] = field(default_factory=dict)  # everything else, by name

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not (self.lost or self.doubled or self.corrected or any(self.wrong.values()))


def check(city: FaultCity, feeds: Sequence[CountFeed], swap: ModelSwapper, retrain: RetrainRequester) -> Findings:
    """Check everything once no request or run is in progress."""
    findings = Findings()
    for feed in feeds:
        _check_counts(city, feed, findings)
    findings.wrong = {
        "runs lost": _runs_lost(city, retrain),
        "runs doubled": _runs_doubled(city),
        "algorithms with two active versions": _several_active(city),
        "activations lost": _activations_lost(city, swap),
        "forecasts by half or twice": _forecasts_by_half(city),
        "rows without artifact": _without_artifact(city),
        "artifacts without row after a sweep": _without_row(city),
        "unexpected answers": sum(len(client.unexpected) for client in (*feeds, swap, retrain)),
    }
    return findings


def _check_counts(city: FaultCity, feed: CountFeed, findings: Findings) -> None:
    stored = _stored(city, feed.links)
    served = _served(city, feed)
    history = _history(city, feed.links)
    for place, count in feed.acknowledged.items():
        if stored.get(place) != [count] or served.get(place) != [count]:
            findings.lost.append(place)
        if history.pop(place, []) != feed.replaced.get(place, []):
            findings.corrected.append(place)
    findings.corrected += history
    findings.doubled += [place for place in stored if place not in feed.acknowledged or len(stored[place]) > 1]
    findings.doubled += [place for place in served if len(served[place]) > 1]


def _stored(city: FaultCity, links: Sequence[str]) -> dict[Place, list[int]]:
    question = "SELECT link_id, slot_start, count FROM counts JOIN links USING (link_key) WHERE link_id = ANY(%s)"
    return _by_place(city.rows(question, list(links)))


def _history(city: FaultCity, links: Sequence[str]) -> dict[Place, list[int]]:
    question = """SELECT link_id, slot_start, count FROM count_corrections JOIN links USING (link_key)
                  WHERE link_id = ANY(%s) ORDER BY id"""
    return _by_place(city.rows(question, list(links)))


def _served(city: FaultCity, feed: CountFeed) -> dict[Place, list[int]]:
    rows = []
    for link in feed.links:
        page = f"/v1/links/{link}/counts?from={slot_name(0)}&to={slot_name(feed.slots)}&limit=10000"
        cursor: str | None = ""
        while cursor is not None:
            status, body = city.request("GET", page + (f"&cursor={cursor}" if cursor else ""))
            if status != 200:
                raise RuntimeError(f"GET {page}: {status} {body}")
            for one in body["counts"]:
                if one["count"] is not None:
                    start = timegm(time.strptime(one["slot_start"], "%Y-%m-%dT%H:%M:%SZ"))
                    rows.append((link, start, one["count"]))
            cursor = body["next_cursor"]
    return _by_place(rows)


def _by_place(rows: Sequence[tuple[Any, ...]]) -> dict[Place, list[int]]:
    findings: dict[Place, list[int]] = {}
    for link, start, count in rows:
        findings.setdefault((link, (start - FIRST_SLOT) // SLOT_SECONDS), []).append(count)
    return findings


def _runs_lost(city: FaultCity, retrain: RetrainRequester) -> int:
    rows = city.rows("SELECT run_id, state, version FROM retrain_links")
    done = {run for run, state, version in rows if state == "done" and version is not None}
    return len(set(retrain.accepted) - done)


def _runs_doubled(city: FaultCity) -> int:
    """Count versions beyond the first of one run, and versions that two runs claim."""
    made = Counter(city.rows("SELECT link_key, about->'decision'->>'run_id' FROM trained_models"))
    claimed = Counter(city.rows("SELECT link_key, version FROM retrain_links WHERE version IS NOT NULL"))
    return sum(n - 1 for n in made.values()) + sum(n - 1 for n in claimed.values())


def _several_active(city: FaultCity) -> int:
    active = "SELECT link_key FROM trained_models WHERE state = 'active'"
    return len(city.rows(f"{active} GROUP BY link_key, algorithm HAVING count(*) > 1"))


def _activations_lost(city: FaultCity, swap: ModelSwapper) -> int:
    question = "SELECT link_id, version FROM trained_models JOIN links USING (link_key) WHERE state = 'active'"
    active = {(link, version) for link, version in city.rows(question)}
    return len(swap.active.items() - active)


def _forecasts_by_half(city: FaultCity) -> int:
    """Count forecasts without exactly one row per horizon, or with several times of issue."""
    question = """
        SELECT 1 FROM forecasts JOIN links USING (link_key)
        GROUP BY link_key, model_version, slot_start - horizon * 60 * slot_minutes
        HAVING count(*) <> 4 OR count(DISTINCT issued_at) <> 1
    """
    return len(city.rows(question))


def _without_artifact(city: FaultCity) -> int:
    return sum(not (city.models / folder / "manifest.json").is_file() for (folder,) in _folders(city))


def _without_row(city: FaultCity) -> int:
    """Count artifacts without a row after a sweep, which skips recent ones, so their times are set back first."""
    known = {folder for (folder,) in _folders(city)}
    store = ModelStore(city.models)
    for place in set(store.places()) - known:
        _make_old(store.path(place))
    engine = open_database(city.url.replace("postgresql://", "postgresql+psycopg://"))
    sweep_store(engine, store)
    engine.dispose()
    return len(set(store.places()) - known)


def _folders(city: FaultCity) -> list[tuple[str]]:
    return city.rows("SELECT folder FROM trained_models")


def _make_old(folder: Path) -> None:
    past = time.time() - 2 * LEFT_AFTER_SECONDS
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (past, past))
