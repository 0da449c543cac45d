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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from threadpoolctl import threadpool_limits

from app.counts.series import LinkSeries, as_count_series
from app.links.folders import folder_name
from app.network.calendar import AUTO, holidays_of
from app.network.gather import UNKNOWN, Whereabouts, by_network, covering_days, examined, gather_network
from app.network.phase import ACTIVE, BASE, NETWORK, PREFIX, Phase, learn, phase_folder
from app.train import (
    ActiveModel,
    LinkOutcome,
    data_fingerprint,
    describe,
    failure,
    figures_as_json,
    learnt_from,
    plan_as_json,
    rivals_of,
)
from model.artifact import DamagedArtifact, remove_leftovers
from model.bands import Bands
from model.error_measures import Measure
from model.kernel import Array
from model.network.context import ContextParts
from model.network.network import NetworkModel
from model.network.plan import NetworkPlan
from model.network.stored import NETWORKS, network_of, save_network_model
from model.profile import Profile
from model.series import CountSeries
from model.stored_model import load_model, save_model
from model.training import NotEnoughCounts, TrainingResult, compare, cross_coverage, measured, train
from model.training_plan import TrainingPlan

BEST = "best"
ALGORITHMS = (NETWORK, BEST)
SHARED = ("horizons", "held_out_days", "level", "max_iter", "mu")  # parameters that mean the same to both plans
OF_NETWORKS = ("days", "context")  # those that a link by itself has no use for
Report = Callable[[str, int, int], object]
Figures = dict[str, dict[str, Measure]]


@dataclass(frozen=True)
class NetworkTraining:
    """How to train links in their networks.

    Parameters
    ----------
    algorithm : "NETWORK" or "best"
    network : NetworkPlan
    alone : TrainingPlan
        For KR_SML on lags and KR; its held-out days are those that everything is measured on.
    holidays : str
        As the setting has it: auto, off, a country or a part of one.
    """

    algorithm: str = BEST
    network: NetworkPlan = field(default_factory=NetworkPlan)
    alone: TrainingPlan = field(default_factory=TrainingPlan)
    holidays: str = AUTO

    @classmethod
    def of(cls, algorithm: str, parameters: Mapping[str, Any], holidays: str = AUTO) -> NetworkTraining:
        """Make both plans from parameters by name.

        ``days`` is how much past memories keep, ``context`` which parts a row is made of.
        """
        shared = {name: value for name, value in parameters.items() if name in SHARED}
        if parameters.get("days"):
            shared["memory_days"] = parameters["days"]
        if parameters.get("context") is not None:
            shared["parts"] = ContextParts.named(parameters["context"])
        alone = {name: value for name, value in parameters.items() if name not in OF_NETWORKS}
        return cls(algorithm, NetworkPlan(**shared), TrainingPlan(**alone), holidays)

    def as_json(self) -> dict[str, Any]:
        """Give the network's plan as it is kept with a model."""
        given = asdict(self.network) | {"parts": self.network.parts.names, "algorithm": NETWORK}
        given["held_out_days"] = self.alone.held_out_days
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


class _Group(NamedTuple):
    """The links of one network, and by what its training is known again."""

    links: Sequence[LinkSeries]
    key: str


def train_networks(
    links: Sequence[LinkSeries],
    output: Path,
    how: NetworkTraining,
    whereabouts: Mapping[str, Whereabouts],
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
    whereabouts: Mapping[str, Whereabouts],
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
    folder = phase_folder(output, group.key)
    if not resume or Phase.read(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)
        series = gather_network(group.links, whereabouts, how.holidays).series
        days = covering_days(group.links, series, how.alone.held_out_days)
        learn(folder, series, replace(how.network, held_out_days=days), {}, report=report)
        del series
    # One BLAS thread a process: the processes already use the cores.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        workers = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
        yield from workers(
            joblib.delayed(train_in_network)(
                link, output, how, folder, group.key, whereabouts.get(link.link_id, UNKNOWN).capacity
            )
            for link in waiting
        )


def train_in_network(
    link: LinkSeries,
    output: Path,
    how: NetworkTraining,
    phase: Path,
    key: str = "",
    capacity: float | None = None,
    active: ActiveModel | None = None,
) -> LinkOutcome:
    """Settle one link of a network and write its artifact; whatever goes wrong becomes its outcome."""
    started = time.perf_counter()
    try:
        with threadpool_limits(limits=1):
            read = Phase.read(phase)
            if read is None:
                raise FileNotFoundError(f"there is no network phase in {phase}")
            about = _Settling(link, how, read, capacity, active).settle(output / folder_name(link.link_id), key)
    except Exception as problem:  # one link's failure must not stop the others
        return failure(link.link_id, started, problem)
    return LinkOutcome(link.link_id, "trained", time.perf_counter() - started, about=about)


class _Settling:
    """One link of a network, about to get its model."""

    def __init__(
        self, link: LinkSeries, how: NetworkTraining, phase: Phase, capacity: float | None, active: ActiveModel | None
    ) -> None:
        self._link, self._how, self._phase, self._capacity = link, how, phase, capacity
        self._series = as_count_series(link)
        self._health = examined(link, capacity)
        self._rivals = rivals_of(link, active)
        self._draft = phase.model(link.link_id)
        self._said = phase.said(link)
        self._active = {ACTIVE: self._said[ACTIVE][:, 0]} if ACTIVE in self._said else {}

    def settle(self, folder: Path, key: str) -> dict[str, Any]:
        """Choose, save, and give what is known about what was chosen."""
        if self._how.algorithm == BEST:
            return self._best(folder, key)
        if self._draft is None:
            raise NotEnoughCounts(self._phase.failed or "the network has no counts of it")
        figures, young = self._network_figures({"candidate": self._one_ahead(NETWORK), BASE: self._one_ahead(BASE)})
        return self._save_network_model(folder, self._draft, NETWORK, figures, self._more(key, young))

    def _best(self, folder: Path, key: str) -> dict[str, Any]:
        if self._draft is None:
            missing = self._phase.failed or "the network has no counts of it"
            return self._save_alone(
                folder, self._alone(self._how.alone, {}), key, f"there is no network model: {missing}"
            )
        said = {NETWORK: self._one_ahead(NETWORK), BASE: self._one_ahead(BASE)}
        try:
            alone = self._alone(self._how.alone, said)
        except NotEnoughCounts:
            figures, young = self._network_figures(said)
            winner, reason = _winner(figures, (NETWORK, BASE))
            figures = {"candidate": dict(figures[winner]), **figures}
            return self._save_winner(folder, winner, figures, self._more(key, young, reason))
        figures = alone.held_out | {"KR_SML": dict(alone.held_out["candidate"])}
        winner, reason = _winner(figures, (NETWORK, BASE, "KR_SML", "KR"))
        if winner == "KR_SML":
            return self._save_alone(folder, alone._replace(held_out=figures), key, reason)
        if winner == "KR":
            plain = self._alone(replace(self._how.alone, algorithm="KR"), said)
            figures["candidate"] = plain.held_out["candidate"]
            return self._save_alone(folder, plain._replace(held_out=figures), key, reason)
        figures["candidate"] = dict(figures[winner])
        return self._save_winner(folder, winner, figures, self._more(key, False, reason))

    def _alone(self, plan: TrainingPlan, said: Mapping[str, Array]) -> TrainingResult:
        others = {**said, **self._active}
        return train(self._series, plan, self._capacity, self._link.suspect, self._rivals, others)

    def _save_winner(self, folder: Path, winner: str, figures: Figures, more: dict[str, Any]) -> dict[str, Any]:
        assert self._draft is not None
        model = self._draft
        if winner == BASE:  # the network model without its memories, within bands of its own errors
            model = replace(model, shares=np.zeros(2), bands=self._base_bands() or model.bands)
        return self._save_network_model(folder, model, winner, figures, more)

    def _save_network_model(
        self, folder: Path, model: NetworkModel, method: str, figures: Figures, more: dict[str, Any]
    ) -> dict[str, Any]:
        figures["candidate"]["coverage"] = self._coverage(self._said.get(method))
        about = {
            **learnt_from(self._link, self._health, data_fingerprint(self._link, self._capacity)),
            "plan": self._how.as_json(),
            "mu": self._phase.facts["mu"],
            "n_iter": self._phase.facts["n_iter"],
            "rank": model.rank,
            "held_out": figures_as_json(figures),
            "network": self._phase.network,
            **more,
        }
        save_network_model(folder, model, self._phase.network, about)
        return about

    def _save_alone(self, folder: Path, result: TrainingResult, key: str, reason: str) -> dict[str, Any]:
        plan = replace(self._how.alone, algorithm=result.model.algorithm)
        about = describe(self._link, plan, result, data_fingerprint(self._link, self._capacity))
        about |= self._more(key, False, reason)
        save_model(folder, result.model, about)
        return about

    def _more(self, key: str, young: bool, reason: str = "") -> dict[str, Any]:
        """Say what only training in a network knows."""
        found: dict[str, Any] = {"training": key, "young": young}
        return found | ({"chosen": reason} if reason else {})

    def _one_ahead(self, method: str) -> Array:
        said = self._said.get(method)
        return np.full(len(self._link), np.nan) if said is None else said[:, 0]

    def _network_figures(self, said: dict[str, Array]) -> tuple[Figures, bool]:
        """Measure what the network said beside KR, profile and last week; of a young link beside what it has."""
        try:
            return compare(
                self._series, said | self._active, self._how.alone, self._capacity, self._link.suspect, self._rivals
            ), False
        except NotEnoughCounts:
            return self._young_figures(said | self._active), True

    def _young_figures(self, said: dict[str, Array]) -> Figures:
        """Measure day by day, against the link's own profile of the days before each."""
        sound = self._series.without(self._health.suspect)
        begin = max(0, len(self._link) - self._how.alone.held_out_days * self._series.slots_per_day)
        slots = np.arange(begin, len(self._link))
        methods = {"profile": _daily_profile(sound, self._link)[slots], "last_week": self._series.last_week()[slots]}
        methods = {method: expected[slots] for method, expected in said.items()} | methods
        return measured(self._series.counts[slots], methods, 1440 / self._series.slots_per_day)

    def _coverage(self, said: Array | None) -> Measure:
        """Measure coverage as for a link trained by itself: each held-out day within the other days' bands."""
        if said is None:
            return Measure(None, 0)
        sound = self._series.without(self._health.suspect).counts
        begin = max(0, len(self._link) - self._how.alone.held_out_days * self._series.slots_per_day)
        slots = np.flatnonzero(~np.isnan(said[:, 0]) & ~np.isnan(sound))
        slots = slots[slots >= begin]
        return cross_coverage(said[slots, :1], sound[slots, None], slots, self._series, self._how.network.level)

    def _base_bands(self) -> Bands | None:
        said = self._said[BASE]
        sound = self._series.without(self._health.suspect).counts
        padded = np.concatenate([sound, np.full(said.shape[1], np.nan)])
        came = padded[np.arange(len(said))[:, None] + np.arange(said.shape[1])]
        with suppress(ValueError):  # too few errors; those of the whole model stand in
            return Bands.learn(said, came, self._how.network.level)
        return None


def _daily_profile(sound: CountSeries, link: LinkSeries) -> Array:
    """Return what the link's own profile, of the days before each, expects of its slots; NaN on its first day."""
    day = link.calendar().day
    expected = np.full(len(sound), np.nan)
    for one in np.unique(day):
        before, today = int(np.searchsorted(day, one)), day == one
        past = sound.head(before)
        if not np.isnan(past.counts).all():
            profile = Profile.learn(past.counts, past.weekday, past.slot_of_day, past.slots_per_day)
            expected[today] = profile.at(sound.weekday[today], sound.slot_of_day[today])
    return expected


def _winner(figures: Figures, methods: Sequence[str]) -> tuple[str, str]:
    """Give the method with the smallest RMSE, and say so; of equals the first, and the first where none has any."""
    errors = {method: figures[method]["rmse"].value for method in methods}
    known = {method: error for method, error in errors.items() if error is not None}
    if not known:
        return methods[0], f"{methods[0]}: there was no held-out slot to choose by"
    winner = min(known, key=lambda method: known[method])
    others = ", ".join(f"{method} {error:.4g}" for method, error in known.items() if method != winner)
    beside = f", beside {others}" if others else ""
    return winner, f"{winner}: RMSE {known[winner]:.4g} on the held-out slots{beside}"


def training_key(links: Sequence[LinkSeries], whereabouts: Mapping[str, Whereabouts], how: NetworkTraining) -> str:
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
