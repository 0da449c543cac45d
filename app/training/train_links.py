"""Train many links in parallel processes, one artifact per link; a failure concerns its link alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import joblib
from threadpoolctl import threadpool_limits

from app.core.holidays import holiday_region
from app.counts.series import LinkSeries
from app.links.tables import folder_name
from app.training.aligned_counts import UNKNOWN, LinkTopology, by_network
from app.training.link_training import (
    EXPERTS,
    LinkTraining,
    algorithm_of,
    data_fingerprint,
    expert_folder,
    plan_as_json,
)
from app.training.network_stage import (
    BEST,
    PREFIX,
    NetworkStage,
    NetworkTraining,
    ReportProgress,
    execute_stage,
    reason_of,
    stage_folder,
)
from app.training.parallel import run_parallel
from app.training.train_model import train_model
from model.aggregation.experts import TRAINED_EXPERTS
from model.artifacts.artifact import DamagedArtifact, remove_leftovers
from model.artifacts.link_models import load_model
from model.artifacts.network_models import NETWORKS, network_of
from model.estimators.descent import OnEvaluation
from model.link_model.training_plan import TrainingPlan

Topology = Mapping[str, LinkTopology]


@dataclass(frozen=True)
class LinkOutcome:
    """The result of training one link: what is kept with its model, or why there is none.

    Where experts were trained, ``about`` is that of the best one, ``others`` has those of the others by algorithm, and
    ``starts`` the weights they start with, see `TrainedModels`.
    """

    link_id: str
    state: Literal["trained", "kept", "failed"]
    seconds: float
    reason: str = ""
    about: dict[str, Any] | None = None
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    starts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def artifacts(self, output: Path) -> dict[str, Path]:
        """Return the folders of the link's artifacts in ``output`` by algorithm, the best one first."""
        if self.about is None:
            return {}
        folder = output / folder_name(self.link_id)
        return {algorithm_of(self.about): folder} | {name: expert_folder(folder, name) for name in self.others}


def train_link(training: LinkTraining, output: Path, on_evaluation: OnEvaluation | None = None) -> LinkOutcome:
    """Train one link and write its artifact into ``output``; an exception becomes its outcome."""
    link_id, started = training.series.link_id, time.perf_counter()
    try:
        with threadpool_limits(limits=1):  # joblib does so only when there are several processes
            abouts, starts = train_model(training, output / folder_name(link_id), on_evaluation)
    except Exception as problem:  # one link's failure must not stop the others
        return LinkOutcome(link_id, "failed", time.perf_counter() - started, reason_of(problem))
    (_, about), *others = abouts.items()
    return LinkOutcome(link_id, "trained", time.perf_counter() - started, "", about, dict(others), dict(starts))


def train_links(
    links: Iterable[LinkSeries],
    output: Path,
    plan: TrainingPlan | NetworkTraining,
    *,
    topology: Topology | None = None,
    beside: Iterable[LinkSeries] = (),
    jobs: int = -1,
    resume: bool = False,
    report: ReportProgress | None = None,
) -> Iterator[LinkOutcome]:
    """Train links, by themselves or network by network, and yield the outcomes as they complete.

    Artifacts are written completely or not at all: stopping in the middle leaves only complete ones.

    Parameters
    ----------
    links : iterable of LinkSeries
        Of a plan for links by themselves each is read when a process is free to train it.
    beside : iterable of LinkSeries
        Links that networks are learnt from as well, and that get no artifact.
    resume : bool, default=False
        Keep links whose artifacts came from the same counts and plan, and a network that was learnt before an
        interruption.
    report : callable, optional
        Called with the progress of a network.
    """
    output.mkdir(parents=True, exist_ok=True)
    remove_leftovers(output)
    if isinstance(plan, TrainingPlan):
        calls = (_train_or_keep(link, output, plan, topology or {}, resume) for link in links)
        yield from run_parallel(calls, jobs=jobs)
        return
    wanted = {link.link_id: link for link in links}
    networks = by_network([*wanted.values(), *beside]).values()
    for link_id in sorted(wanted.keys() - {link.link_id for network in networks for link in network}):
        yield LinkOutcome(link_id, "failed", 0.0, "it has no counts")
    for network in networks:
        waiting = [link for link in network if link.link_id in wanted]
        yield from _train_network(network, waiting, output, plan, topology or {}, jobs, resume, report)
    for leftover in output.glob(f"{PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _remove_unused_networks(output)


def _train_or_keep(link: LinkSeries, output: Path, plan: TrainingPlan, topology: Topology, resume: bool) -> Any:
    """Return the call that trains a link by itself, or that returns the outcome of one that is kept."""
    capacity = topology.get(link.link_id, UNKNOWN).capacity
    if resume:
        same = {"data_fingerprint": data_fingerprint(link, capacity), "plan": plan_as_json(plan)}
        if (kept := _kept(output, link, same, experts=False)) is not None:
            return joblib.delayed(LinkOutcome)(**vars(kept))
    return joblib.delayed(train_link)(LinkTraining(link, plan, capacity), output)


def _train_network(
    network: Sequence[LinkSeries],
    waiting: Sequence[LinkSeries],
    output: Path,
    how: NetworkTraining,
    topology: Topology,
    jobs: int,
    resume: bool,
    report: ReportProgress | None,
) -> Iterator[LinkOutcome]:
    key = _training_key(network, topology, how)
    if resume:
        same, experts = {"training": key}, how.algorithm == BEST
        kept = {link.link_id: one for link in waiting if (one := _kept(output, link, same, experts=experts))}
        yield from kept.values()
        waiting = [link for link in waiting if link.link_id not in kept]
    if not waiting:
        return
    folder = stage_folder(output, key)
    if not resume or NetworkStage.read(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)
        execute_stage(folder, network, topology, how, report=report)
    trainings = (
        LinkTraining(link, how, topology.get(link.link_id, UNKNOWN).capacity, stage=folder, key=key) for link in waiting
    )
    yield from run_parallel((joblib.delayed(train_link)(training, output) for training in trainings), jobs=jobs)


def _training_key(links: Sequence[LinkSeries], topology: Topology, how: NetworkTraining) -> str:
    """Return a hash of everything that a network and its links are learnt from, and of how."""
    digest = hashlib.sha256(how.algorithm.encode())
    digest.update(json.dumps([how.as_json(), plan_as_json(how.alone)], sort_keys=True).encode())
    digest.update(holiday_region(links[0].zone.key, how.holidays).encode())
    for link in sorted(links, key=lambda link: link.link_id):
        known = topology.get(link.link_id, UNKNOWN)
        facts = [link.link_id, data_fingerprint(link, known.capacity), known.geometry, list(known.upstream)]
        digest.update(json.dumps(facts, sort_keys=True).encode())
    return digest.hexdigest()


def _kept(output: Path, link: LinkSeries, same: Mapping[str, Any], *, experts: bool) -> LinkOutcome | None:
    """Return the outcome of a link whose models are sound and were trained from the expected counts and plan.

    Of a link with experts all must be there; a model that was trained by itself is no expert.
    """
    folder, others = output / folder_name(link.link_id), {}
    try:
        about = load_model(folder)[1]
        for algorithm in TRAINED_EXPERTS:
            if (other := expert_folder(folder, algorithm)).is_dir():
                others[algorithm] = load_model(other)[1]
    except (DamagedArtifact, OSError):
        return None
    wanted = sorted([algorithm_of(about), *others]) if experts else None
    same = {**same, EXPERTS: wanted}
    if all(one.get(name) == value for one in (about, *others.values()) for name, value in same.items()):
        return LinkOutcome(link.link_id, "kept", 0.0, "", about, others)
    return None


def _remove_unused_networks(output: Path) -> None:
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
