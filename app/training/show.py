"""Show retrain runs."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.training.queries import links_of, runs_before, tally
from app.training.request import run_or_404
from app.training.schemas import AcceptedRun, RunDetail, RunLink, RunOut, RunPage
from app.training.tables import RetrainRun


def show_runs(session: Session, cursor: int | None, limit: int) -> RunPage:
    """List runs, the newest first."""
    found = runs_before(session, cursor, limit + 1)
    states = tally(session, [run.id for run in found])
    shown = [RunOut(**RunOut.facts(run, states.get(run.id, {}))) for run in found[:limit]]
    return RunPage(runs=shown, next_cursor=str(shown[-1].run_id) if len(found) > limit else None)


def show_run(session: Session, run_id: int) -> RunDetail:
    """Show one run with its links."""
    run = run_or_404(session, run_id)
    return RunDetail(**RunOut.facts(run, tally(session, [run_id]).get(run_id, {})), links=_links(session, run))


def show_accepted(session: Session, run: RetrainRun, elsewhere: dict[str, int]) -> AcceptedRun:
    """Show a run that was just queued."""
    facts = RunOut.facts(run, tally(session, [run.id]).get(run.id, {}))
    return AcceptedRun(**facts, links=_links(session, run), already_running=elsewhere)


def _links(session: Session, run: RetrainRun) -> list[RunLink]:
    return [RunLink.of(row, link_id) for row, link_id in links_of(session, run.id)]
