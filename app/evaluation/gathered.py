"""Gather what was asked for and what came of it into one report."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from app.evaluation.choice import Choice, split_names
from app.evaluation.evaluate import Evaluated
from app.evaluation.measures import MARE_FLOOR
from app.evaluation.plan import EvaluationPlan
from app.evaluation.report import FORMAT, VERSION, NotEvaluated, Options, Report, fingerprint_of
from app.evaluation.summary import summarise
from model.error_measures import GEH_LIMIT, GEH_SHARE
from model.link_model.lag_window import LagWindow


class Asked(NamedTuple):
    """What an evaluation was asked for, and how long it took."""

    files: list[str]
    plan: EvaluationPlan
    names: str | None
    sample: int | None
    seed: int
    slot_minutes: int
    choice: Choice
    seconds: float


def gather_report(asked: Asked, outcomes: list[Evaluated | NotEvaluated]) -> tuple[Report, dict[str, bytes]]:
    """Return the report, links in order, and the pictures by file name."""
    done = sorted((o for o in outcomes if isinstance(o, Evaluated)), key=lambda o: o.result.link_id)
    failed = [outcome for outcome in outcomes if isinstance(outcome, NotEvaluated)]
    left_out = sorted([*asked.choice.left_out, *failed], key=lambda link: link.link_id)
    links, options = [outcome.result for outcome in done], _options(asked)
    report = Report(
        format=FORMAT,
        version=VERSION,
        flowcast_version=version("flowcast"),
        files=[_shown_name(file) for file in asked.files],
        data_fingerprint=fingerprint_of(links),
        protocol=asked.plan.protocol,
        options=options,
        notes=asked.choice.notes,
        summary=summarise(links, left_out, options.level),
        links=links,
        not_evaluated=left_out,
        seconds=asked.seconds,
    )
    return report, {outcome.result.figure: outcome.picture for outcome in done}


def _shown_name(file: str) -> str:
    """Return a file's name without its folder, which means nothing elsewhere, as text that can be written."""
    return "standard input" if file == "-" else Path(file).name.encode(errors="replace").decode()


def _options(asked: Asked) -> Options:
    plan = asked.plan
    return Options(
        train_days=plan.train_days,
        test_days=plan.test_days,
        first_day=plan.first_day.isoformat() if plan.first_day else None,
        links=None if asked.names is None else split_names(asked.names),
        sample=asked.sample,
        seed=asked.seed if asked.sample is not None else None,
        lags=list(LagWindow(plan.lags).lags),
        neighbors=plan.neighbors_of("KR"),
        slot_minutes=asked.slot_minutes,
        held_out_days=plan.held_out_days,
        held_out_days_reduced=plan.held_out_reduced,
        level=plan.training_plan("KR_SML").level,
        mare_floor=MARE_FLOOR,
        geh_limit=GEH_LIMIT,
        geh_share=GEH_SHARE,
    )
