"""Train links in their networks: what they learn together first, then for each link what is its own.

``NETWORK`` makes the network model of every link; ``best`` compares it, link by link, with its linear
base alone, with KR_SML on lags and with KR, and keeps what has the smallest RMSE on the held-out slots.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import joblib
from threadpoolctl import threadpool_limits

from app.core.network_calendar import holidays_of
from app.counts.series import LinkSeries
from app.links.tables import folder_name
from app.training.aligned_counts import UNKNOWN, LinkTopology, align_counts, by_network, covering_days
from app.training.link_training import (
    ActiveModel,
    LinkOutcome,
    data_fingerprint,
    failure,
    plan_as_json,
)
from app.training.network_options import NetworkTraining
from app.training.network_stage import PREFIX, NetworkStage, learn, stage_folder
from app.training.parallel import run_parallel
from app.training.select import LinkModelSelector
from model.artifacts.artifact import DamagedArtifact, remove_leftovers
from model.artifacts.link_models import load_model
from model.artifacts.network_models import NETWORKS, network_of
from model.estimators.descent import OnEvaluation

Report = Callable[[str, int, int], object]


class _Group(NamedTuple):
    """The links of one network, and by what its training is known again."""

    links: Sequence[LinkSeries]
    key: str


def train_networks(
    links: Sequence[LinkSeries],
    output: Path,
    how: NetworkTraining,
    whereabouts: Mapping[str, LinkTopology],
    *,
    asked: Collection[str] | None = None,
    jobs: int = -1,
    resume: bool = False,
    report: Report | None = None,
) -> Iterator[LinkOutcome]:
    """Train links network by network and give the outcomes as they come.

    The networks are learnt from all links; artifacts are made of those asked for. Artifacts are written
    whole or not at all. With ``resume`` links are kept that came from the same network's counts and
    plan, and so is a network whose links were not all settled.
    """
    output.mkdir(parents=True, exist_ok=True)
    remove_leftovers(output)
    wanted = {link.link_id for link in links} if asked is None else set(asked)
    groups = [_Group(group, training_key(group, whereabouts, how)) for group in by_network(links).values()]
    for link_id in sorted(wanted - {link.link_id for group in groups for link in group.links}):
        yield LinkOutcome(link_id, "failed", 0.0, "it has no counts")
    for group in groups:
        yield from _train_group(group, output, how, whereabouts, wanted, jobs, resume, report)
    for leftover in output.glob(f"{PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    drop_unused_networks(output)


def _train_group(
    group: _Group,
    output: Path,
    how: NetworkTraining,
    whereabouts: Mapping[str, LinkTopology],
    wanted: Collection[str],
    jobs: int,
    resume: bool,
    report: Report | None,
) -> Iterator[LinkOutcome]:
    waiting = [link for link in group.links if link.link_id in wanted]
    if resume:
        kept = {link.link_id: about for link in waiting if (about := _kept(output, link, group.key)) is not None}
        for link_id, about in kept.items():
            yield LinkOutcome(link_id, "kept", 0.0, about=about)
        waiting = [link for link in waiting if link.link_id not in kept]
    if not waiting:
        return
    folder = stage_folder(output, group.key)
    if not resume or NetworkStage.read(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)
        series = align_counts(group.links, whereabouts, how.holidays).series
        days = covering_days(group.links, series, how.alone.held_out_days)
        learn(folder, series, replace(how.network, held_out_days=days), {}, report=report)
        del series
    calls = (
        joblib.delayed(train_in_network)(
            link, output, how, folder, group.key, whereabouts.get(link.link_id, UNKNOWN).capacity
        )
        for link in waiting
    )
    yield from run_parallel(calls, jobs=jobs)


def train_in_network(
    link: LinkSeries,
    output: Path,
    how: NetworkTraining,
    phase: Path,
    key: str = "",
    capacity: float | None = None,
    active: ActiveModel | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> LinkOutcome:
    """Settle one link of a network and write its artifact; whatever goes wrong becomes its outcome."""
    started = time.perf_counter()
    try:
        with threadpool_limits(limits=1):
            read = NetworkStage.read(phase)
            if read is None:
                raise FileNotFoundError(f"there is no network phase in {phase}")
            selector = LinkModelSelector(link, how, read, capacity, active, on_evaluation)
            about = selector.select(output / folder_name(link.link_id), key)
    except Exception as problem:  # one link's failure must not stop the others
        return failure(link.link_id, started, problem)
    return LinkOutcome(link.link_id, "trained", time.perf_counter() - started, about=about)


def training_key(links: Sequence[LinkSeries], whereabouts: Mapping[str, LinkTopology], how: NetworkTraining) -> str:
    """Return a hash of everything that a network and its links are learnt from, and of how."""
    digest = hashlib.sha256(how.algorithm.encode())
    digest.update(json.dumps([how.as_json(), plan_as_json(how.alone)], sort_keys=True).encode())
    digest.update(holidays_of(links[0].zone.key, how.holidays).encode())
    for link in sorted(links, key=lambda link: link.link_id):
        known_of = whereabouts.get(link.link_id, UNKNOWN)
        known = [link.link_id, data_fingerprint(link, known_of.capacity), known_of.geometry, list(known_of.upstream)]
        digest.update(json.dumps(known, sort_keys=True).encode())
    return digest.hexdigest()


def _kept(output: Path, link: LinkSeries, key: str) -> dict[str, Any] | None:
    with suppress(DamagedArtifact, OSError):
        _, about = load_model(output / folder_name(link.link_id))
        return about if about.get("training") == key else None
    return None


def drop_unused_networks(output: Path) -> None:
    """Remove the networks that no artifact of a folder refers to any more."""
    used = set()
    for folder in output.iterdir():
        with suppress(DamagedArtifact, OSError):
            used.add(network_of(folder))
    home = output / NETWORKS
    for network in home.iterdir() if home.is_dir() else ():
        if network.name not in used:
            shutil.rmtree(network, ignore_errors=True)
    with suppress(OSError):  # others are left
        home.rmdir()
