"""What ``flowcast train`` says when it is done."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from app.commands.console import out
from app.commands.shelving import ShelvingOutcome
from app.training.link_training import LinkOutcome


def as_documents(outcomes: list[LinkOutcome], shelved: list[ShelvingOutcome] | None) -> list[dict[str, Any]]:
    """Say for machines what became of each link, and of its place on the shelf if it was to have one."""
    documents = [asdict(outcome) for outcome in outcomes]
    if shelved is not None:
        by_link = {outcome.link_id: asdict(outcome) for outcome in shelved}
        documents = [document | {"shelf": by_link.get(document["link_id"])} for document in documents]
    return documents


def print_summary(outcomes: list[LinkOutcome]) -> None:
    """Print one line a link: how good it was on the held-out days, beside others."""
    table = Table(title="RMSE one slot ahead on the held-out days")
    for heading in ("link", "", "model", "KR", "profile", "last week", "within 90 %", "rank", "suspect", "s"):
        table.add_column(heading, justify="left" if heading in ("link", "") else "right")
    for outcome in outcomes:
        if outcome.about is None:
            table.add_row(escape(outcome.link_id), f"[red]failed[/]: {escape(outcome.reason)}")
            continue
        held = outcome.about["held_out"]
        errors = [_shown(_value(held, method, "rmse")) for method in ("candidate", "KR", "profile", "last_week")]
        inside = _value(held, "candidate", "coverage")
        rank, suspect = outcome.about["rank"], outcome.about["suspect"]
        cells = [*errors, _shown(None if inside is None else 100 * inside, " %"), f"{rank}", f"{suspect}"]
        table.add_row(escape(outcome.link_id), outcome.state, *cells, f"{outcome.seconds:.1f}")
    out.print(table)
    states = [outcome.state for outcome in outcomes]
    out.print(f"{states.count('trained')} trained, {states.count('kept')} kept, {states.count('failed')} failed")


def _value(held: dict[str, Any], method: str, measure: str) -> float | None:
    """Give a figure, of a young link None where there is none."""
    value = held.get(method, {}).get(measure, {}).get("value")
    return None if value is None else float(value)


def _shown(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.1f}{unit}"
