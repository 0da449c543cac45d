"""Retraining, activating, rolling back and withdrawing over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from app.core.database import reading
from app.core.errors import FieldError, NotFound, ProblemType
from app.http.dependencies import ChangeFeedDep, EngineDep, ReadSession, SettingsDep, WriteSession
from app.http.examples import example_of
from app.http.problems import problem_responses
from app.http.requests import JSON, chosen_type, cursor_query
from app.http.sse import EVENT_STREAM, EventStream, Frame, event_content
from app.keys.authentication import AdminKey
from app.links.queries import LinkInfo, all_links, link_or_404, links_by_id
from app.links.schemas import LinkPath
from app.registry.activate import activate, deactivate
from app.registry.cleanup import remove_old_versions
from app.registry.queries import activations_before, last_activation
from app.registry.schemas import VersionPath
from app.registry.store import open_store
from app.training.queries import ENDED, run_links, runs_before, tally
from app.training.request import cancel_run, parameters_of, refreshable, request_run, run_or_404
from app.training.schemas import (
    AcceptedRun,
    ActivationOut,
    ActivationPage,
    ActivationReason,
    NewRun,
    RunDetail,
    RunLink,
    RunOut,
    RunPage,
    RunPath,
    Withdrawal,
)


def show_run(session: Session, run_id: int) -> RunDetail:
    """Return a run with its links, as it is shown."""
    run = run_or_404(session, run_id)
    facts = RunOut.facts(run, tally(session, [run_id]).get(run_id, {}))
    return RunDetail(**facts, links=[RunLink.of(row, link_id) for row, link_id in run_links(session, run_id)])


router = APIRouter(prefix="/v1/admin", tags=["retraining"])

Cursor = Annotated[str | None, cursor_query(r"^[0-9]{1,9}$")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Entries in a page, at most")]


@router.post(
    "/retrain",
    status_code=202,
    summary="Retrain links",
    responses=problem_responses(
        ProblemType.NOT_FOUND, ProblemType.NO_LINKS, ProblemType.RUN_IN_PROGRESS, ProblemType.NOT_REFRESHABLE
    ),
    response_model=AcceptedRun,
)
def create_retrain_run(
    body: NewRun, request: Request, response: Response, caller: AdminKey, session: WriteSession
) -> AcceptedRun:
    """Queue a run, which a worker then executes. Links that are in another run are reported and left out."""
    links = all_links(session) if body.links == "all" else _named(session, body.links)
    given = body.parameters.model_dump(exclude_none=True) if body.parameters else {}
    parameters = parameters_of(body.algorithm, given, refresh=body.refresh)
    if body.refresh:
        links = refreshable(session, links, named=body.links != "all")
    run, elsewhere = request_run(
        session, links, body.algorithm, parameters, activate=body.activate, requested_by=caller.key_id
    )
    response.headers["Location"] = f"{request.scope.get('root_path', '')}/v1/admin/retrain/{run.id}"
    return AcceptedRun(**dict(show_run(session, run.id)), already_running=elsewhere)


@router.get("/retrain", summary="All retrain runs")
def list_retrain_runs(caller: AdminKey, session: ReadSession, limit: Limit = 100, cursor: Cursor = None) -> RunPage:
    """List runs, the newest first."""
    found = runs_before(session, int(cursor) if cursor else None, limit + 1)
    states = tally(session, [run.id for run in found])
    shown = [RunOut(**RunOut.facts(run, states.get(run.id, {}))) for run in found[:limit]]
    return RunPage(runs=shown, next_cursor=str(shown[-1].run_id) if len(found) > limit else None)


@router.get(
    "/retrain/{run_id}",
    summary="One retrain run",
    response_model=RunDetail,
    responses={200: {"content": event_content("run", example_of(RunDetail))}},
)
async def get_retrain_run(
    run_id: RunPath,
    request: Request,
    engine: EngineDep,
    changes: ChangeFeedDep,
    settings: SettingsDep,
    caller: AdminKey,
) -> Response:
    """Show a run with its links; by `Accept: text/event-stream` as events, until it is over."""

    def show() -> RunDetail:
        with reading(engine) as session:
            return show_run(session, run_id)

    first = await run_in_threadpool(show)
    if chosen_type(request, JSON, EVENT_STREAM) == JSON:
        return Response(first.model_dump_json(), media_type=JSON)

    def frames(last: Frame | None) -> tuple[list[Frame], bool]:
        shown = show() if last is not None else first
        frame = Frame("run", shown.model_dump_json())
        return ([] if last is not None and last.data == frame.data else [frame]), shown.state in ENDED

    return EventStream(request, changes.any_version, frames, settings.stream_seconds)


@router.delete(
    "/retrain/{run_id}",
    summary="Cancel a retrain run",
    responses=problem_responses(ProblemType.RUN_FINISHED),
)
def cancel_retrain_run(run_id: RunPath, caller: AdminKey, session: WriteSession) -> RunDetail:
    """Cancel a run: at once while it is queued, within seconds while it trains. What it activated stays."""
    cancel_run(session, run_id)
    return show_run(session, run_id)


@router.post(
    "/links/{link_id}/models/{version}/activate",
    summary="Activate a version",
    responses=problem_responses(ProblemType.ZONE_MISMATCH, ProblemType.DAMAGED_ARTIFACT, ProblemType.STORE_UNREACHABLE),
)
def activate_model(
    link_id: LinkPath,
    version: VersionPath,
    caller: AdminKey,
    session: WriteSession,
    settings: SettingsDep,
    body: ActivationReason | None = None,
) -> ActivationOut:
    """Activate a version, or go back to one; every process serves it within two seconds."""
    link = link_or_404(session, link_id)
    store = open_store(settings)
    chosen = activate(session, store, link, version, by=caller.key_id, reason=body.reason if body else None)
    remove_old_versions(session, store, link.link_key, settings.keep_retired)
    done = last_activation(session, link.link_key, version)
    if done is not None:
        return ActivationOut.of(done, link_id)
    # It was active already when activations were first recorded.
    before = {"previous_version": None, "activated_by": "unknown", "reason": None, "figures": None}
    return ActivationOut(
        link_id=link_id, version=version, activated_at=chosen.activated_at or chosen.created_at, **before
    )


@router.post(
    "/links/{link_id}/models/deactivate",
    summary="Withdraw the active models",
    responses=problem_responses(ProblemType.NO_ACTIVE_MODEL),
)
def deactivate_model(
    link_id: LinkPath, caller: AdminKey, session: WriteSession, body: Withdrawal | None = None
) -> ActivationOut:
    """Withdraw a link's active models, or that of one algorithm; return the last withdrawal.

    Without an active model its profile is used until a version is activated or a run activates one.
    """
    link, body = link_or_404(session, link_id), body or Withdrawal()
    done = deactivate(session, link, algorithm=body.algorithm, by=caller.key_id, reason=body.reason)
    return ActivationOut.of(done[-1], link_id)


@router.get("/links/{link_id}/activations", summary="Activations of a link")
def list_link_activations(
    link_id: LinkPath, caller: AdminKey, session: ReadSession, limit: Limit = 100, cursor: Cursor = None
) -> ActivationPage:
    """List who activated which version when and why, with the figures, the newest first."""
    link = link_or_404(session, link_id)
    rows = activations_before(session, link.link_key, int(cursor) if cursor else None, limit + 1)
    shown = [ActivationOut.of(row, link_id) for row in rows[:limit]]
    return ActivationPage(activations=shown, next_cursor=str(rows[limit - 1].id) if len(rows) > limit else None)


def _named(session: Session, link_ids: list[str]) -> list[LinkInfo]:
    known = links_by_id(session, link_ids)
    absent = [link_id for link_id in dict.fromkeys(link_ids) if link_id not in known]
    if absent:
        errors = [FieldError("links", link_id, "must name a link that exists") for link_id in absent[:100]]
        raise NotFound(f"{len(absent)} of the links do not exist; the first is {absent[0]!r}", errors)
    return list(known.values())
