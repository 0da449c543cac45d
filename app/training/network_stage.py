"""Network stages: the training that the links of a network share, stored until each of them has its model.

A stage is a folder beside the artifacts of the links, ``.network-…``: a draft of each link's model, forecasts of the
held-out slots, and ``stage.json``, which is written last, so that an interrupted stage is not taken for complete. The
network's own artifact is stored where those of the links refer to it. A process that trains a link reads only that
link's part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from app.core.holidays import AUTO
from app.counts.series import LinkSeries
from app.links.tables import folder_name
from app.training.aligned_counts import LinkTopology, align_counts, covering_days
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.link_models import load_model
from model.artifacts.network_models import save_network, save_network_model
from model.link_model.training import NotEnoughCounts
from model.link_model.training_plan import TrainingPlan
from model.network_model.context import ContextParts
from model.network_model.held_out import forecast_held_out
from model.network_model.network import ALGORITHM as NETWORK
from model.network_model.network import NetworkModel
from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkSeries
from model.network_model.training import refresh_network, train_network

Array = NDArray[np.float64]
ReportProgress = Callable[[str, int, int], object]

BEST = "best"
ALGORITHMS = (NETWORK, BEST)
BASE, ACTIVE = "base", "active"  # methods of a stage's forecasts, beside NETWORK
SHARED = ("horizons", "held_out_days", "level", "max_iter", "mu")  # parameters that mean the same to both plans
OF_NETWORKS = ("days", "context", "refresh")  # those that a link by itself has no use for
PREFIX = ".network-"
FACTS = "stage.json"
LEAST_LINKS = 2


@dataclass(frozen=True)
class NetworkTraining:
    """The parameters of training links in their networks.

    Parameters
    ----------
    algorithm : "NETWORK" or "best"
        With another algorithm links are trained by themselves, and their network's stage only forecasts the held-out
        days by active network models.
    network : NetworkPlan
    alone : TrainingPlan
        For KR_SML on lags and KR; its held-out days are those that everything is measured on.
    holidays : str
        As the setting has it: auto, off, a country or a part of one.
    refresh : bool
        Add newer counts to active network models, and learn nothing anew.
    """

    algorithm: str = BEST
    network: NetworkPlan = field(default_factory=NetworkPlan)
    alone: TrainingPlan = field(default_factory=TrainingPlan)
    holidays: str = AUTO
    refresh: bool = False

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
        if algorithm not in ALGORITHMS:
            alone["algorithm"] = algorithm
        refresh = bool(parameters.get("refresh"))
        return cls(algorithm, NetworkPlan(**shared), TrainingPlan(**alone), holidays, refresh)

    def as_json(self) -> dict[str, Any]:
        """Return the network's plan as it is kept with a model."""
        given = asdict(self.network) | {"parts": self.network.parts.names, "algorithm": NETWORK}
        given["held_out_days"] = self.alone.held_out_days
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


class ActiveModel(NamedTuple):
    """The artifact of a link's active model."""

    folder: Path
    fingerprint: str


@dataclass(frozen=True, eq=False)
class NetworkStage:
    """A stage that has ended, from which links are trained."""

    folder: Path
    facts: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> NetworkStage | None:
        """Read a stage; None if there is none, or one that was interrupted."""
        try:
            return cls(folder, json.loads((folder / FACTS).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    @property
    def failed(self) -> str:
        """Return why there is no network; empty if there is one."""
        return str(self.facts.get("failed", ""))

    @property
    def network(self) -> str:
        """Return the fingerprint of the network's artifact."""
        return str(self.facts["network"])

    @property
    def forecast_links(self) -> dict[str, list[str]]:
        """Return the links whose held-out slots were forecast, by method, in the order of their rows."""
        return dict(self.facts.get("forecasts", {}))

    def model(self, link_id: str) -> NetworkModel | None:
        """Return the draft of a link's model; None for one that has none."""
        folder = self.folder / folder_name(link_id)
        if self.failed or not folder.is_dir():
            return None
        model, _ = load_model(folder)
        assert isinstance(model, NetworkModel)
        return model

    def forecasts(self, link: LinkSeries) -> dict[str, Array]:
        """Return the forecasts of a link's slots, (n, n_horizons) by method; NaN where there is none."""
        found = {}
        for method, link_ids in self.forecast_links.items():
            if link.link_id not in link_ids:
                continue
            row = np.load(self.folder / f"{method}.npy", mmap_mode="r")[link_ids.index(link.link_id)]
            aligned = np.full((len(link), row.shape[1]), np.nan)
            begin = int(self.facts["first"]) - link.first  # where the row begins in the link's series
            slots = np.arange(max(begin, 0), min(begin + len(row), len(link)))
            aligned[slots] = row[slots - begin]
            if not np.isnan(aligned).all():
                found[method] = aligned
        return found


def stage_folder(output: Path, key: str) -> Path:
    """Return the folder of a stage, among the artifacts of its links."""
    return output / f"{PREFIX}{quote(key, safe='')}"


def execute_stage(
    folder: Path,
    links: Sequence[LinkSeries],
    topology: Mapping[str, LinkTopology],
    how: NetworkTraining,
    *,
    active: Mapping[str, ActiveModel] | None = None,
    drafts: Collection[str] | None = None,
    report: ReportProgress | None = None,
) -> None:
    """Train the network of links, or refresh it; forecast their held-out days with the active network models, too.

    Parameters
    ----------
    folder : Path
        Where the stage is stored. An exception is stored there as its failure; each link decides how to go on.
    active : mapping of str to ActiveModel, optional
        By link, the models that are compared with; in a refresh, those that newer counts join.
    drafts : collection of str, optional
        In a refresh, the links whose models are wanted.
    report : callable, optional
        Called with a part of the training, and how many of its steps are done.
    """
    with _stored_facts(folder) as facts:
        series = align_counts(links, topology, how.holidays)
        models = _network_models(active or {})
        if how.refresh:
            facts["network"] = _refresh(folder, series, how.network, models, drafts or ())
            return
        plan = replace(how.network, held_out_days=covering_days(links, series, how.alone.held_out_days))
        if how.algorithm in ALGORITHMS:
            facts.update(_train(folder, series, plan, report))
        served = {link_id: model for link_id, model in models.items() if link_id in series.link_ids}
        if served:
            forecasts = forecast_held_out(series, served, plan)
            rows = [series.link_ids.index(link_id) for link_id in served]
            np.save(folder / f"{ACTIVE}.npy", forecasts.expected[rows])
            facts["first"] = series.first + forecasts.first
            facts["forecasts"] = {**facts.get("forecasts", {}), ACTIVE: list(served)}


@contextmanager
def _stored_facts(folder: Path) -> Iterator[dict[str, Any]]:
    """Write the facts of a stage when the block ends, or why it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {}
    try:
        yield facts
    except Exception as problem:  # a network's failure must not stop the others
        facts = {"failed": reason_of(problem)}
    new = folder / f"{FACTS}.new"
    new.write_text(json.dumps(facts), encoding="utf-8")
    new.replace(folder / FACTS)


def reason_of(problem: Exception) -> str:
    """Return why training failed; the type of an exception is left out where its message is ours."""
    return str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"


def _train(folder: Path, series: NetworkSeries, plan: NetworkPlan, report: ReportProgress | None) -> dict[str, Any]:
    if (n := len(series.link_ids)) < LEAST_LINKS:
        raise NotEnoughCounts(f"a network of {n} link cannot be trained; at least {LEAST_LINKS} links need counts")
    result = train_network(series, plan, report)
    about = {"links": n, "days": series.days, "ridge": result.ridge, "own_ridge": result.own_ridge}
    fingerprint = save_network(folder.parent, result.network, about)
    _save_drafts(folder, (model for model in result.models if model is not None), fingerprint)
    np.save(folder / f"{NETWORK}.npy", result.held_out.network)
    np.save(folder / f"{BASE}.npy", result.held_out.base)
    return {
        "network": fingerprint,
        "first": series.first + result.held_out.first,
        "forecasts": {NETWORK: series.link_ids, BASE: series.link_ids},
        "mu": result.metric.mu,
        "n_iter": result.metric.n_iter,
    }


def _refresh(
    folder: Path, series: NetworkSeries, plan: NetworkPlan, models: dict[str, NetworkModel], drafts: Collection[str]
) -> str:
    """Add newer counts to profiles and memories of one network's models; return the fingerprint of the network."""
    if not models:
        raise NotEnoughCounts("there is no active network model that could be refreshed")
    network = next(iter(models.values())).network
    plan = replace(plan, held_out_days=1, horizons=network.horizons)
    fresh, every = refresh_network(series, network, models, plan)
    fingerprint = save_network(folder.parent, fresh, {"links": len(series.link_ids), "days": series.days})
    _save_drafts(folder, (model for link_id, model in every.items() if link_id in drafts), fingerprint)
    return fingerprint


def _save_drafts(folder: Path, models: Iterable[NetworkModel], network: str) -> None:
    for model in models:
        link_id = model.network.link_ids[model.link]
        save_network_model(folder / folder_name(link_id), model, network, {"link_id": link_id})


def _network_models(active: Mapping[str, ActiveModel]) -> dict[str, NetworkModel]:
    """Load the network models among artifacts; leave out those that cannot be read."""
    found = {}
    for link_id, (folder, fingerprint) in active.items():
        try:
            model, _ = load_model(folder, fingerprint=fingerprint)
        except (DamagedArtifact, OSError):
            continue
        if isinstance(model, NetworkModel):
            found[link_id] = model
    return found
