"""What the figures mean, in words for a traffic engineer, computed from the run."""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from typing import Any

from app.evaluation.plan import BEST, COMPARED, METHODS
from app.evaluation.tables import COUNT, LEVEL, RATIO, SHARE, VEHICLES, shown


class Numbers:
    """A report as JSON, from which the page takes every number it shows.

    A number is written as an element with ``data-path``, where it is in ``report.json``, and
    ``data-value``, what it is there at full precision; the eye sees it rounded.
    """

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report

    def at(self, *path: str | int) -> Any:
        """Return what is at a path."""
        value: Any = self.report
        for key in path:
            value = value[key]
        return value

    def attributes(self, *path: str | int) -> str:
        """Return the attributes that say where a number is from."""
        where = ".".join(map(str, path))
        return f'data-path="{escape(where)}" data-value="{escape(json.dumps(self.at(*path)))}"'

    def span(self, style: str, *path: str | int) -> str:
        """Return a number within a sentence."""
        return f"<span {self.attributes(*path)}>{escape(shown(self.at(*path), style))}</span>"

    def cell(self, style: str, *path: str | int, best: bool = False) -> str:
        """Return a number in a table; the best of its row in bold, and marked for screen readers."""
        text = escape(shown(self.at(*path), style))
        if best:
            note = '<span class="visually-hidden"> best</span>'
            return f'<td class="best" {self.attributes(*path)}><strong>{text}</strong>{note}</td>'
        return f"<td {self.attributes(*path)}>{text}</td>"


MOST_NAMED = 3
KR, KR_PCA, MLKR, KR_SML = (METHODS.index(method) for method in ("KR", "KR_PCA", "MLKR", "KR_SML"))
LEARNS_A_METRIC = (MLKR, KR_SML)
SHORT = 0.03  # an interval that holds so much less than it is meant to is worth a word
STRAYED = "the counts of the test days strayed further than those it was learnt from"
BELIEVES_ITSELF = "a method that fits the training days too closely believes itself more exact than it is"


def verdict(numbers: Numbers) -> list[str]:
    """Return the findings of this run, a paragraph each."""
    paragraphs = [
        _first(numbers),
        _choices(numbers),
        _accuracy(numbers),
        _training_against_test(numbers),
        _geh(numbers),
        _intervals(numbers),
        _skill(numbers),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def _first(numbers: Numbers) -> str:
    """Return which method is the best over all links, which place KR_SML has, and which links were left out."""
    ranking = numbers.at("summary", "ranking")
    if not ranking:
        return _left_out(numbers)
    path = ("geometric_mean", "test", "rmse")
    best, ours = (
        numbers.span(VEHICLES, "summary", "methods", COMPARED.index(method), *path) for method in (ranking[0], "KR_SML")
    )
    total = numbers.span(COUNT, "summary", "n_links")
    place = ranking.index("KR_SML") + 1
    return (
        f"The best method over all {total} links is <strong>{ranking[0]}</strong>, with a test RMSE of {best} vehicles "
        f"a slot in geometric mean. KR_SML has place <strong>{place} of {len(ranking)}</strong>, with {ours}. "
        f"{_left_out(numbers)}"
    )


def _left_out(numbers: Numbers) -> str:
    links = numbers.at("not_evaluated")
    if not links:
        return "No link was left out."
    named = "; ".join(f"{escape(link['link_id'])}: {escape(link['reason'])}" for link in links[:MOST_NAMED])
    more = ' (<a href="#left-out">all of them</a>)' if len(links) > MOST_NAMED else ""
    noun = "link was" if len(links) == 1 else "links were"
    return f"{numbers.span(COUNT, 'summary', 'n_not_evaluated')} {noun} left out: {named}{more}."


def _choices(numbers: Numbers) -> str:
    chosen = [link["methods"][COMPARED.index(BEST)]["chosen"] for link in numbers.at("links")]
    counted = Counter(method for method in chosen if method)
    if not counted:
        return ""
    told = ", ".join(f"{method} on {n}" for method, n in counted.most_common())
    return f"“best” is what training chooses link by link, on held-out training days: {told}."


def _accuracy(numbers: Numbers) -> str:
    wins = numbers.span(COUNT, "summary", "methods", KR_SML, "wins", "test", "rmse")
    total = numbers.span(COUNT, "summary", "n_links")
    slots = numbers.span(COUNT, "summary", "n_scored")
    means = [
        f"{numbers.span(VEHICLES, 'summary', 'methods', at, 'geometric_mean', 'test', 'rmse')} for {method}"
        for at, method in enumerate(COMPARED)
    ]
    compared = ""
    if numbers.at("summary", "methods", KR_SML, "test_rmse_to_kr") is not None:
        figure = numbers.span(RATIO, "summary", "methods", KR_SML, "test_rmse_to_kr")
        compared = f" KR_SML's is {figure} times KR's."
    return (
        f"On {wins} of {total} links KR_SML had the smallest test RMSE of all methods, over {slots} "
        f"scored slots. In geometric mean over the links the test RMSE was {_list(means)}.{compared}"
        f"{_caveat(numbers)}"
    )


def _list(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _caveat(numbers: Numbers) -> str:
    if numbers.at("protocol") != "paper":
        return ""
    return (
        " KR_SML runs as the product trains it, KR, KR_PCA and MLKR as in the paper: not all of the difference is the "
        'metric\'s (<a href="#made">how this was made</a>).'
    )


def _training_against_test(numbers: Numbers) -> str:
    wins = [
        [numbers.at("summary", "methods", at, "wins", part, "rmse") for part in ("train", "test")]
        for at in range(len(METHODS))
    ]
    fallen = max(range(len(METHODS)), key=lambda at: wins[at][0] - wins[at][1])
    if wins[fallen][0] <= wins[fallen][1]:
        return ""
    train, test = (
        numbers.span(COUNT, "summary", "methods", fallen, "wins", part, "rmse") for part in ("train", "test")
    )
    total = numbers.span(COUNT, "summary", "n_links")
    meaning = (
        "part of what it learnt holds for the training days alone"
        if fallen in LEARNS_A_METRIC
        else "its place on the training days does not carry over"
    )
    return (
        f"{METHODS[fallen]} had the smallest training RMSE on {train} of {total} links and the smallest test RMSE on "
        f"{test}: {meaning}. Judge a method by the test days."
    )


def _geh(numbers: Numbers) -> str:
    passed = numbers.span(COUNT, "summary", "methods", KR_SML, "geh_links_passed")
    total = numbers.span(COUNT, "summary", "n_links")
    share = numbers.span(SHARE, "summary", "methods", KR_SML, "mean", "test", "geh_pass_share")
    wape = numbers.span(SHARE, "summary", "methods", KR_SML, "mean", "test", "wape")
    limit, least = numbers.span(COUNT, "options", "geh_limit"), numbers.span(LEVEL, "options", "geh_share")
    return (
        f"KR_SML passes the GEH criterion, GEH below {limit} in at least {least} of slots, on {passed} of {total} "
        f"links; in the mean over links {share} of the slots are below {limit}. Its WAPE is {wape} in the mean: so "
        "many vehicles in a hundred counted were expected too many or too few."
    )


def _intervals(numbers: Numbers) -> str:
    means = [numbers.at("summary", "methods", at, "mean", "test", "coverage") for at in range(len(METHODS))]
    short = [at for at, mean in enumerate(means) if mean is not None and mean < numbers.at("options", "level") - SHORT]
    asked, ours = numbers.span(LEVEL, "options", "level"), _coverage(numbers, KR_SML)
    sentence = f"KR_SML's interval, meant to hold {asked} of the counts, held {ours} in the mean over links"
    sentence += f": {STRAYED}." if KR_SML in short else "."
    worst = min(short, key=lambda at: means[at], default=KR_SML)
    if means[worst] == means[KR_SML]:
        return sentence
    why = BELIEVES_ITSELF if worst == MLKR and numbers.at("protocol") == "paper" else STRAYED
    return f"{sentence} {METHODS[worst]}'s held {_coverage(numbers, worst)}: {why}."


def _coverage(numbers: Numbers, at: int) -> str:
    return numbers.span(SHARE, "summary", "methods", at, "mean", "test", "coverage")


def _skill(numbers: Numbers) -> str:
    path = ("summary", "methods", KR_SML, "mean", "test")
    against_profile, against_week = numbers.at(*path, "skill_profile"), numbers.at(*path, "skill_last_week")
    if against_profile is None or against_week is None:
        return ""
    profile, week = numbers.span(SHARE, *path, "skill_profile"), numbers.span(SHARE, *path, "skill_last_week")
    verdict = (
        "it knows more than the calendar does"
        if against_profile > 0
        else "on these days the calendar alone says as much or more"
    )
    return (
        f"Against the link's profile, its usual count at that weekday and time of day, KR_SML's skill is {profile} "
        f"in the mean: {verdict}. Against the same slot last week it is {week}."
    )


def made(numbers: Numbers) -> list[str]:
    """Return how the report was made, a paragraph each."""
    days = " + ".join(numbers.span(COUNT, "options", key) for key in ("train_days", "test_days"))
    first = numbers.at("options", "first_day")
    begin = f"{escape(first)}" if first else "each link's first whole local day"
    lags = numbers.span(COUNT, "links", 0, "d")
    held = numbers.span(COUNT, "options", "held_out_days")
    also = "; the same for its siblings, as far as they have them" if numbers.at("protocol") == "product" else ""
    paragraphs = [
        f"Days: {days} (learnt from + forecast), from {begin} on. Each test slot is forecast one slot ahead from the "
        f"true {lags} counts before it; a gap among them is filled with the link's profile. Every count of the test "
        "days is scored, suspect and imputed ones too; a slot without a count is not.",
        _protocol(numbers),
        f"Chosen on the last {held} of the training days, and never on the test days: KR_SML's μ, its number of steps "
        f"and the share of the level it keeps{also}. “best” is chosen on the same days as training does: NETWORK, its "
        "linear base, KR_SML or KR, or the profile where none of them is better by the product's margin.",
        "NETWORK is learnt from the training days of all links with the same days, zone and slot length; its profiles "
        "stay as they were at the end of the training days.",
        "Training figures are leave-one-out: a window's own count and all neighbours within a day are barred, for "
        "windows an hour apart share most of their counts. The profile that training skill is measured against "
        "leaves out the day in question.",
        "Intervals are conformal bands. As the product trains, they are learnt from the errors on the held-out days; "
        "for a method under the paper's settings, which holds no days out, from its leave-one-out errors. A method "
        "that fits the training days too closely then gets too narrow ones, and coverage shows it.",
    ]
    if numbers.at("options", "held_out_days_reduced"):
        paragraphs[2] += " That is fewer than the product's usual 7, because the training span is short."
    return paragraphs


def _protocol(numbers: Numbers) -> str:
    k = ", ".join(
        f"{method} {numbers.span(COUNT, 'links', 0, 'methods', at, 'k')}" for at, method in enumerate(METHODS)
    )
    if numbers.at("protocol") == "paper":
        return (
            "Protocol “paper”: KR, KR_PCA and MLKR run under the paper's settings (bandwidth 1, one mean and one "
            "standard deviation a link from the training days, MLKR descended to the end, 30 steps at most); KR_SML "
            f"runs as the product trains it. Neighbours k: {k}. So KR_SML differs from its siblings in more than the "
            "metric: part of its lead is the product's k, level and detector health. The protocol “product” gives "
            "these to all four, and shows what the metric alone is worth."
        )
    return (
        "Protocol “product”: all four methods run as the product trains them, detector health, held-out days and the "
        f"level included. Neighbours k: {k}."
    )
