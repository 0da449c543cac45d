"""What the links of a network learn together, kept in a folder until each of them is settled.

A phase lies beside the artifacts of the links, as ``.network-…``: a draft of each link's model, what
was said of the held-out slots, and ``phase.json``, which is written last. The network's own artifact
goes where those of the links will look for it. So a process that settles a link reads no more than
that link's share, and one that was killed leaves nothing that looks whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.counts.series import LinkSeries
from app.links.tables import folder_name
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.link_models import load_model
from model.artifacts.network_models import save_network, save_network_model
from model.link_model.training import NotEnoughCounts
from model.network_model.judging import judge
from model.network_model.network import NetworkModel
from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkCalendar, NetworkSeries
from model.network_model.training import refresh_network, train_network

Array = NDArray[np.float64]
Report = Callable[[str, int, int], object]
Artifact = tuple[Path, str]  # its folder and its fingerprint

PREFIX = ".network-"
FACTS, SERIES = "phase.json", "series.json"
LEAST_LINKS = 2
NETWORK, BASE, ACTIVE = "NETWORK", "base", "active"


@dataclass(frozen=True, eq=False)
class NetworkStage:
    """A phase that is over, for whoever settles a link."""

    folder: Path
    facts: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> NetworkStage | None:
        """Read a phase; None where there is none, or one that did not come to its end."""
        try:
            return cls(folder, json.loads((folder / FACTS).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    @property
    def failed(self) -> str:
        """Why there is no network; empty where there is one."""
        return str(self.facts.get("failed", ""))

    @property
    def network(self) -> str:
        """Fingerprint of the network's artifact."""
        return str(self.facts["network"])

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
        for method, ids in self.facts.get("said", {}).items():
            if link.link_id not in ids:
                continue
            spoken = np.load(self.folder / f"{method}.npy", mmap_mode="r")[ids.index(link.link_id)]
            aligned = np.full((len(link), spoken.shape[1]), np.nan)
            begin = int(self.facts["first"]) - link.first  # where in the link's series it begins
            here = np.arange(max(begin, 0), min(begin + len(spoken), len(link)))
            aligned[here] = spoken[here - begin]
            if not np.isnan(aligned).all():
                found[method] = aligned
        return found


def stage_folder(output: Path, key: str) -> Path:
    """Return the folder of a phase among the artifacts it makes."""
    return output / f"{PREFIX}{key[:16]}"


def keep_series(folder: Path, series: NetworkSeries) -> None:
    """Put a network's counts where a process that carries out its phase finds them."""
    folder.mkdir(parents=True, exist_ok=True)
    calendar = series.calendar
    np.save(folder / "counts.npy", series.counts)
    np.save(folder / "calendar.npy", np.stack([calendar.weekday, calendar.slot_of_day, calendar.day]))
    plain = {
        "link_ids": series.link_ids,
        "slots_per_day": calendar.slots_per_day,
        "junction": series.junction.tolist(),
        "upstream": series.upstream,
        "first": series.first,
        "holidays": series.holidays,
    }
    (folder / SERIES).write_text(json.dumps(plain), encoding="utf-8")


def kept_series(folder: Path) -> NetworkSeries:
    """Take the counts that were put there, mapped into memory."""
    plain = json.loads((folder / SERIES).read_text(encoding="utf-8"))
    weekday, slot_of_day, day = np.load(folder / "calendar.npy")
    return NetworkSeries(
        tuple(plain["link_ids"]),
        np.load(folder / "counts.npy", mmap_mode="r"),
        NetworkCalendar(weekday, slot_of_day, day, plain["slots_per_day"]),
        np.array(plain["junction"], dtype=np.int64),
        tuple(tuple(links) for links in plain["upstream"]),
        plain["first"],
        plain["holidays"],
    )


def learn(
    folder: Path,
    series: NetworkSeries,
    plan: NetworkPlan,
    active: Mapping[str, Artifact],
    *,
    report: Report | None = None,
) -> None:
    """Train a network, forecast the same held-out days with the active network models, and store all that.

    Whatever goes wrong is stored in the phase; its links decide what it means for them.
    """

    def work() -> dict[str, Any]:
        _require_network(series)
        result = train_network(series, plan, report)
        about = {"links": len(series.link_ids), "days": series.days, "ridge": result.ridge}
        fingerprint = save_network(folder.parent, result.network, about | {"own_ridge": result.own_ridge})
        having = [model for model in result.models if model is not None]
        _keep_drafts(folder, having, fingerprint)
        _save_forecasts(folder, NETWORK, result.judged.network)
        _save_forecasts(folder, BASE, result.judged.base)
        ids = list(series.link_ids)
        forecasts = {NETWORK: ids, BASE: ids} | _judged(folder, series, plan, active)
        facts = {"network": fingerprint, "first": series.first + result.judged.first, "said": forecasts}
        return facts | {"mu": result.metric.mu, "n_iter": result.metric.n_iter}

    _carry_out(folder, work)


def judge_active(folder: Path, series: NetworkSeries, plan: NetworkPlan, active: Mapping[str, Artifact]) -> None:
    """Forecast the held-out days by the active network models, for links that are trained by themselves."""

    def work() -> dict[str, Any]:
        forecasts = _judged(folder, series, plan, active)
        return {"first": _first_held_out(series, plan), "said": forecasts}

    _carry_out(folder, work)


def refresh(
    folder: Path, series: NetworkSeries, plan: NetworkPlan, active: Mapping[str, Artifact], new: Sequence[str]
) -> None:
    """Add newer counts to profiles and memories of one network's models, and take new links in."""

    def work() -> dict[str, Any]:
        models = _network_models(active)
        if not models:
            raise NotEnoughCounts("there is no active network model that could be refreshed")
        network = next(iter(models.values())).network
        fresh, every = refresh_network(series, network, models, replace(plan, horizons=network.horizons))
        fingerprint = save_network(folder.parent, fresh, {"links": len(series.link_ids), "days": series.days})
        wanted = {*models, *new}
        _keep_drafts(folder, [model for link_id, model in every.items() if link_id in wanted], fingerprint)
        return {"network": fingerprint}

    _carry_out(folder, work)


def _carry_out(folder: Path, work: Callable[[], dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        facts = work()
    except Exception as problem:  # a network's failure must not stop the others
        reason = str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"
        facts = {"failed": reason}
    new = folder / f"{FACTS}.new"
    new.write_text(json.dumps(facts), encoding="utf-8")
    new.replace(folder / FACTS)


def _require_network(series: NetworkSeries) -> None:
    if (n := len(series.link_ids)) < LEAST_LINKS:
        raise NotEnoughCounts(f"a network of {n} link is none; at least {LEAST_LINKS} links with counts are needed")


def _keep_drafts(folder: Path, models: Sequence[NetworkModel], network: str) -> None:
    for model in models:
        place = folder / folder_name(model.network.link_ids[model.link])
        save_network_model(place, model, network, {"link_id": model.network.link_ids[model.link]})


def _save_forecasts(folder: Path, method: str, forecasts: Array) -> None:
    np.save(folder / f"{method}.npy", forecasts)


def _judged(
    folder: Path, series: NetworkSeries, plan: NetworkPlan, active: Mapping[str, Artifact]
) -> dict[str, list[str]]:
    models = {link_id: model for link_id, model in _network_models(active).items() if link_id in series.link_ids}
    if not models:
        return {}
    spoken = judge(series, models, plan)
    rows = [series.link_ids.index(link_id) for link_id in models]
    _save_forecasts(folder, ACTIVE, spoken.expected[rows][:, :, None])
    return {ACTIVE: list(models)}


def _first_held_out(series: NetworkSeries, plan: NetworkPlan) -> int:
    days = series.calendar.day - series.calendar.day[0]
    return series.first + int(np.searchsorted(days, series.days - plan.held_out_days))


def _network_models(active: Mapping[str, Artifact]) -> dict[str, NetworkModel]:
    """Load the network models among artifacts; one that cannot be read cannot be better, nor be refreshed."""
    found = {}
    for link_id, (folder, fingerprint) in active.items():
        try:
            model, _ = load_model(folder, fingerprint=fingerprint)
        except (DamagedArtifact, OSError):
            continue
        if isinstance(model, NetworkModel):
            found[link_id] = model
    return found
