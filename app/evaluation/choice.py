"""Which links to evaluate: those named, a sample of those that can be, or all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from app.counts.series import LinkSeries
from app.evaluation.days import cut_out
from app.evaluation.plan import EvaluationPlan
from app.evaluation.report import NotEvaluated
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
