"""What the links of a run learn together, in a process that ends with the run."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from sqlalchemy.orm import Session

from app.core.database import reading
from app.counts.queries import newest_slots, stored_span
from app.counts.series import LinkSeries, stored_series
from app.links.queries import LinkInfo, all_links, stored_links, upstream_ids
from app.registry.queries import active_models
from app.training.aligned_counts import AlignedCounts, LinkTopology, align_counts, covering_days
from app.training.heartbeat import Heartbeat
from app.training.network_stage import (
    Artifact,
    NetworkStage,
    judge_active,
    keep_series,
    kept_series,
    learn,
    refresh,
    stage_folder,
)
from app.training.parallel import run_parallel
from app.training.stage_progress import read_share, write_share
from app.training.work import Work
from model.artifacts.artifact import DamagedArtifact
from model.artifacts.network_models import network_of
from model.network_model.plan import NetworkPlan


def read_topology(session: Session, links: Sequence[LinkInfo]) -> dict[str, LinkTopology]:
    """Return what is stored of links: geometry, upstream links and capacity, by id."""
    rows = stored_links(session, [link.link_id for link in links])
    above = upstream_ids(session, [link.link_key for link in links])
    return {
        link.link_id: LinkTopology(
            rows[link.link_id].geometry,
            tuple(above.get(link.link_key, ())),
            None if link.capacity is None else link.capacity * link.slot_minutes / 60,
        )
        for link in links
        if link.link_id in rows
    }


SECONDS_A_DAY = 86_400

log = logging.getLogger("flowcast.retrain")


class _Zone(NamedTuple):
    """The links of one time zone and slot length: all of them, and those asked for."""

    every: list[LinkInfo]
    asked: list[LinkInfo]
    active: dict[str, Artifact]  # the active models of all of them
    networks: dict[str, str]  # by link, the network that its active model refers to


def execute_stages(work: Work, heartbeat: Heartbeat, asked: Sequence[LinkInfo], folder: Path) -> dict[str, Path]:
    """Train the models of networks, network by network; return the folder of each link's network.

    A network is learnt from all links of a time zone and slot length, whichever were asked for. Links that
    are trained by themselves need it only for the forecasts of their active network models.
    """
    found: dict[str, Path] = {}
    zones = _zones(work, asked)
    for number, zone in enumerate(zones):
        if work.refreshes:
            found |= _refreshed(work, zone, folder)
        elif work.in_networks or any(link.link_id in zone.networks for link in zone.asked):
            place = _place(folder, zone, "")
            if work.in_networks:
                heartbeat.enter_stage("network", partial(_share, place, number, len(zones)))
            if NetworkStage.read(place) is None and not _learnt(work, zone, place):
                continue
            found |= {link.link_id: place for link in zone.asked}
    return found


def _share(place: Path, number: int, networks: int) -> float:
    return (number + read_share(place)) / networks


def _learnt(work: Work, zone: _Zone, place: Path) -> bool:
    """Carry out the phase of a network; False where there is no count to learn from."""
    gathered, series = _gathered(work, zone.every)
    if gathered is None:
        return False
    speaking = {link.link_id: zone.active[link.link_id] for link in zone.asked if link.link_id in zone.networks}
    kind: Callable[..., None] = judge_active
    plan = NetworkPlan(memory_days=work.days)
    if work.in_networks:
        how, kind = work.network_training(), learn
        days, plan = how.alone.held_out_days, how.network
    else:
        days = work.plan().held_out_days
    plan = replace(plan, held_out_days=covering_days(series, gathered.series, days))
    _in_a_process(work, kind, place, gathered, plan, speaking)
    return True


def _refreshed(work: Work, zone: _Zone, folder: Path) -> dict[str, Path]:
    """Refresh each network that the zone's active models refer to; the one with most of them takes new links in."""
    asked = {link.link_id for link in zone.asked}
    networks = sorted(set(zone.networks.values()), key=lambda one: -list(zone.networks.values()).count(one))
    new = sorted(asked - set(zone.active))
    found: dict[str, Path] = {}
    gathered: AlignedCounts | None = None
    for network in networks:
        place = _place(folder, zone, network)
        models = {link_id: zone.active[link_id] for link_id, its in zone.networks.items() if its == network}
        taken = new if network == networks[0] else []
        concerned = asked & {*models, *taken}
        if concerned and NetworkStage.read(place) is None:
            gathered = gathered or _gathered(work, zone.every)[0]
            if gathered is None:
                break
            plan = NetworkPlan(memory_days=work.days, held_out_days=1)
            _in_a_process(work, refresh, place, gathered, plan, models, taken)
        found |= dict.fromkeys(concerned, place)
    return found


def _zones(work: Work, asked: Sequence[LinkInfo]) -> list[_Zone]:
    with reading(work.engine) as session:
        every = all_links(session)
        places = active_models(session, [link.link_key for link in every])
    work.store.fetch_many((place.folder, place.fingerprint) for place in places.values())
    zones = []
    for kind in sorted({(link.zone_name, link.slot_minutes) for link in asked}):
        here = [link for link in every if (link.zone_name, link.slot_minutes) == kind]
        active = {
            link.link_id: (work.artifact(places[link.link_key]), places[link.link_key].fingerprint)
            for link in here
            if link.link_key in places
        }
        wanted = [link for link in asked if (link.zone_name, link.slot_minutes) == kind]
        zones.append(_Zone(here, wanted, active, _networks(active)))
    return zones


def _networks(active: Mapping[str, Artifact]) -> dict[str, str]:
    found = {}
    for link_id, (folder, _) in active.items():
        with suppress(DamagedArtifact, OSError):  # what cannot be read is no network's
            if (network := network_of(folder)) is not None:
                found[link_id] = network
    return found


def _gathered(work: Work, links: Sequence[LinkInfo]) -> tuple[AlignedCounts | None, list[LinkSeries]]:
    """Read the last days up to the newest count of any link."""
    with reading(work.engine) as session:
        newest = newest_slots(session, [link.link_key for link in links])
        if not newest:
            return None, []
        whereabouts = read_topology(session, links)
        first = max(newest.values()) - work.days * SECONDS_A_DAY + links[0].slot_seconds
        series = [stored_from(session, link, first) for link in links if newest.get(link.link_key, first - 1) >= first]
    series = [link for link in series if not np.isnan(link.counts).all()]
    return align_counts(series, whereabouts, work.settings.holidays), series


def stored_from(session: Session, link: LinkInfo, first: int | None) -> LinkSeries:
    """Read a link's counts from a moment on, but no earlier than they begin: days before them would only be gaps."""
    oldest, _ = stored_span(session, link.link_key)
    return stored_series(session, link, first if oldest is None or first is None else max(first, oldest))


def _place(folder: Path, zone: _Zone, network: str) -> Path:
    name = f"{zone.every[0].zone_name} {zone.every[0].slot_minutes} {network}"
    return stage_folder(folder, hashlib.sha256(name.encode()).hexdigest())


def _in_a_process(
    work: Work, kind: Callable[..., None], place: Path, gathered: AlignedCounts, plan: NetworkPlan, *given: Any
) -> None:
    """Carry out a phase in a process that can be killed; it alone uses the cores, links wait for it."""
    started = time.perf_counter()
    keep_series(place, gathered.series)
    facts = {"run": work.run.id, "links": len(gathered.series.link_ids), "days": gathered.series.days}
    log.info("network begins", extra=facts)
    # With one job joblib would run the call in this process, where it could not be killed.
    list(run_parallel([joblib.delayed(_phase)(kind, place, plan, *given)], jobs=2, threads=joblib.cpu_count()))
    phase = NetworkStage.read(place)
    seconds = round(time.perf_counter() - started, 2)
    log.info("network ends", extra=facts | {"seconds": seconds, "reason": phase.failed if phase else "no phase"})


def _phase(kind: Callable[..., None], place: Path, plan: NetworkPlan, *given: Any) -> None:
    more = {"report": partial(write_share, place)} if kind is learn else {}
    kind(place, kept_series(place), plan, *given, **more)
