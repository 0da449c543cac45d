"""Request a retrain run, or its cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import insert
from sqlalchemy.orm import Session

from app.core.errors import Conflict, FieldError, Invalid, NotFound, ProblemType
from app.counts.queries import newest_slots
from app.links.queries import LinkInfo
from app.registry.queries import active_models
from app.training.queries import close_links, lock_requests, open_links, run_with
from app.training.tables import RetrainLink, RetrainRun
from model.network_model.network import ALGORITHM as NETWORK

Activate = Literal["if_better", "always", "never"]
SCHEDULE, TRIGGER = "schedule", "trigger"  # who requests a run that no person does
REFRESH = "refresh"  # another of them, and among the parameters of a run that learns nothing anew
DEFAULT_DAYS = 56  # of counts that a run reads by default
OF_ONE_LINK = ("lags", "n_neighbors", "bandwidth")
OF_NETWORKS = ("context",)


def parameters_of(algorithm: str, given: dict[str, Any], *, refresh: bool) -> dict[str, Any]:
    """Return the parameters that a run is stored with; those of other algorithms are refused by name."""
    if refresh and algorithm != "NETWORK":
        raise Invalid.field(
            "refresh", "true", "needs the algorithm NETWORK: models of other algorithms cannot be refreshed"
        )
    for name, value in given.items():
        if refresh and name != "days":
            raise Invalid.field(f"parameters.{name}", value, "must be left out: a refresh learns nothing anew")
        if algorithm == "NETWORK" and name in OF_ONE_LINK:
            raise Invalid.field(f"parameters.{name}", value, "must be left out: NETWORK has no such parameter")
        if algorithm not in ("NETWORK", "best") and name in OF_NETWORKS:
            raise Invalid.field(f"parameters.{name}", value, "must be left out: only NETWORK and best have it")
    return given | ({REFRESH: True} if refresh else {})


def request_run(
    session: Session,
    links: Sequence[LinkInfo],
    algorithm: str,
    parameters: dict[str, Any],
    *,
    activate: Activate,
    requested_by: str,
    occasion: str | None = None,
) -> tuple[RetrainRun, dict[str, int]]:
    """Queue a run over those of the links that are not in another; return it, and the other links with their runs."""
    lock_requests(session)
    busy = open_links(session, [link.link_key for link in links])
    free = [link for link in links if link.link_key not in busy]
    elsewhere = {link.link_id: busy[link.link_key] for link in links if link.link_key in busy}
    if not links:
        raise Conflict(
            ProblemType.NO_LINKS, "there are no links to retrain: none is named, none exists, or none has counts"
        )
    if not free:
        runs = ", ".join(str(run) for run in sorted(set(elsewhere.values())))
        reasons = {link_id: f"must not be in a run; it is in run {run}" for link_id, run in elsewhere.items()}
        raise Conflict(
            ProblemType.RUN_IN_PROGRESS,
            f"all links of the request are in retrain runs already: run {runs}",
            [FieldError("links", link_id, reason) for link_id, reason in reasons.items()],
        )
    run = RetrainRun(
        state="queued",
        algorithm=algorithm,
        parameters=parameters,
        activate=activate,
        requested_by=requested_by,
        requested_at=datetime.now(UTC),
        occasion=occasion,
        cancel_requested=False,
    )
    session.add(run)
    session.flush()
    rows = [{"run_id": run.id, "link_key": link.link_key, "state": "waiting"} for link in free]
    session.execute(insert(RetrainLink), rows)
    return run, elsewhere


def cancel_run(session: Session, run_id: int) -> None:
    """Cancel a run: at once while it is queued, else when its worker reads the request."""
    run = run_or_404(session, run_id)
    if run.state not in ("queued", "running"):
        raise Conflict(ProblemType.RUN_FINISHED, f"run {run_id} is over: it {run.state}")
    run.cancel_requested = True
    if run.state == "queued":
        now = datetime.now(UTC)
        run.state, run.finished_at = "cancelled", now
        close_links(session, run_id, "cancelled", "the run was cancelled before it began", now)
    session.flush()


def run_or_404(session: Session, run_id: int) -> RetrainRun:
    """Return a run, or the problem that it does not exist."""
    run = run_with(session, run_id)
    if run is None:
        raise NotFound(f"there is no retrain run {run_id}", [FieldError("run_id", str(run_id), "must name a run")])
    return run


def refreshable(session: Session, links: Sequence[LinkInfo], *, named: bool = False) -> list[LinkInfo]:
    """Return the links that a refresh concerns: those with an active network model, and those with counts alone.

    Links that no network model forecasts, alone or as an expert, are left out, and refused if they were named. A link
    whose profile won, or whose model was withdrawn, gets a model only if it was named.
    """
    active = {key: [ref.algorithm for ref in refs] for key, refs in active_models(session).items()}

    def is_refreshable(link: LinkInfo) -> bool:
        algorithms = active.get(link.link_key, [])
        return NETWORK in (algorithms if link.has_ensemble else algorithms[-1:])

    others = [link for link in links if link.link_key in active and not is_refreshable(link)]
    if named and others:
        raise Conflict(
            ProblemType.NOT_REFRESHABLE,
            f"{len(others)} of the links cannot be refreshed; the first is {others[0].link_id!r}",
            [
                FieldError(
                    "links",
                    link.link_id,
                    f"must have an active NETWORK model, not {active[link.link_key][-1]}",
                )
                for link in others[:100]
            ],
        )
    if not any(NETWORK in algorithms for algorithms in active.values()):
        raise Conflict(
            ProblemType.NOT_REFRESHABLE,
            "there is no active network model that could be refreshed; a NETWORK or best run makes some",
        )
    counted = newest_slots(session, [link.link_key for link in links])
    return [
        link
        for link in links
        if is_refreshable(link)
        or (link.link_key not in active and link.link_key in counted and (named or link.choice is None))
    ]
