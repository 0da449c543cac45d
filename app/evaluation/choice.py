"""Which links to evaluate: those named, a sample of those that can be, or all; and their evaluations, gathered."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.counts.series import LinkSeries
from app.evaluation.days import cut_out
from app.evaluation.evaluate import Evaluated
from app.evaluation.measures import MARE_FLOOR
from app.evaluation.plan import EvaluationPlan
from app.evaluation.report import FORMAT, VERSION, NotEvaluated, Options, Report, fingerprint_of
from app.evaluation.summary import summarise
from model.error_measures import GEH_LIMIT, GEH_SHARE
from model.link_model.lag_window import LagWindow
from model.link_model.training import NotEnoughCounts

MOST_NAMED = 12


class Choice(NamedTuple):
    """Links to evaluate, links that cannot be, and what there is to say about the choice."""

    links: list[LinkSeries]
    left_out: list[NotEvaluated]
    notes: list[str]


def choose(
    links: dict[str, LinkSeries],
    plan: EvaluationPlan,
    *,
    names: str | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Choice:
    """Choose among the links of the files; ``names`` separates them by commas."""
    if names is not None and sample is not None:
        raise ValueError("links and sample are both given; they exclude each other")
    if sample is not None and sample < 1:
        raise ValueError(f"sample={sample} is refused; it must be a whole number of at least 1")
    if seed < 0:
        raise ValueError(f"seed={seed} is refused; it must be a whole number of at least 0")
    wanted = sorted(links) if names is None else named(links, names)
    able, left_out, gaps = [], [], {}
    for link_id in wanted:
        try:
            gaps[link_id] = cut_out(links[link_id], plan).empty
            able.append(links[link_id])
        except NotEnoughCounts as problem:
            left_out.append(NotEvaluated(link_id, str(problem)))
    notes = []
    if sample is not None and sample > len(able):
        notes.append(f"a sample of {sample} was asked for; {len(able)} links can be evaluated, and all were taken")
    elif sample is not None:
        drawn = np.random.default_rng(seed).choice(len(able), size=sample, replace=False)
        able = [able[at] for at in sorted(drawn)]
    kept = [f"{link.link_id} ({len(gaps[link.link_id])})" for link in able if gaps[link.link_id]]
    if kept:
        more = f" and {len(kept) - MOST_NAMED} more" if len(kept) > MOST_NAMED else ""
        notes.append(f"links with days without a count are kept (how many days): {', '.join(kept[:MOST_NAMED])}{more}")
    return Choice(able, left_out, notes)


def named(links: dict[str, LinkSeries], names: str) -> list[str]:
    """Return the link ids in a list separated by commas; refuse those that are not there."""
    wanted = split_names(names)
    if not wanted:
        raise ValueError(f"links={names!r} is refused; it must name at least one link")
    absent = [name for name in wanted if name not in links]
    if absent:
        known = sorted(links)
        more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
        raise ValueError(f"no link {', '.join(absent)} in the files; there are {', '.join(known[:MOST_NAMED])}{more}")
    return wanted


def split_names(names: str) -> list[str]:
    """Split a list separated by commas; blanks and repetitions do not count."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


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
