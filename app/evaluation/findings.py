"""The sentences of ``report.html``, which explain the figures to a traffic engineer."""

from __future__ import annotations

from collections import Counter
from html import escape

from app.evaluation.plan import BEST, COMPARED, METHODS
from app.evaluation.tables import LEVEL, RATIO, SHARE, VEHICLES, Numbers

MOST_NAMED = 3
KR, KR_PCA, MLKR, KR_SML = range(len(METHODS))
OURS = f"summary.methods.{KR_SML}"
LEARNS_A_METRIC = (MLKR, KR_SML)
SHORT = 0.03  # an interval that holds so much less than it is meant to is explained
STRAYED = "the counts of the test days strayed further than those it was learnt from"
OVERFITS = "a method that fits the training days too closely gives intervals that are too narrow"


def verdict(numbers: Numbers) -> list[str]:
    """Return the findings of this run, a paragraph each."""
    paragraphs = [
        _ranking(numbers),
        _choices(numbers),
        _accuracy(numbers),
        _training_against_test(numbers),
        _geh(numbers),
        _intervals(numbers),
        _skill(numbers),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def _ranking(numbers: Numbers) -> str:
    """Return which method is the best over all links, which place KR_SML has, and which links were left out."""
    ranking = numbers.at("summary.ranking")
    if not ranking:
        return _left_out(numbers)
    best, ours = (
        numbers.span(f"summary.methods.{COMPARED.index(method)}.geometric_mean.test.rmse", VEHICLES)
        for method in (ranking[0], "KR_SML")
    )
    place = ranking.index("KR_SML") + 1
    return (
        f"The best method over all {numbers.span('summary.n_links')} links is <strong>{ranking[0]}</strong>, with a "
        f"test RMSE of {best} vehicles a slot in geometric mean. KR_SML has place <strong>{place} of {len(ranking)}"
        f"</strong>, with {ours}. {_left_out(numbers)}"
    )


def _left_out(numbers: Numbers) -> str:
    links = numbers.at("not_evaluated")
    if not links:
        return "No link was left out."
    named = "; ".join(f"{escape(link['link_id'])}: {escape(link['reason'])}" for link in links[:MOST_NAMED])
    more = ' (<a href="#left-out">all of them</a>)' if len(links) > MOST_NAMED else ""
    noun = "link was" if len(links) == 1 else "links were"
    return f"{numbers.span('summary.n_not_evaluated')} {noun} left out: {named}{more}."


def _choices(numbers: Numbers) -> str:
    chosen = [link["methods"][COMPARED.index(BEST)]["chosen"] for link in numbers.at("links")]
    counted = Counter(method for method in chosen if method)
    if not counted:
        return ""
    choices = ", ".join(f"{method} on {n}" for method, n in counted.most_common())
    return f"“best” is what training chooses link by link, on held-out training days: {choices}."


def _accuracy(numbers: Numbers) -> str:
    means = [
        f"{numbers.span(f'summary.methods.{at}.geometric_mean.test.rmse', VEHICLES)} for {method}"
        for at, method in enumerate(COMPARED)
    ]
    compared = caveat = ""
    if numbers.at(f"{OURS}.test_rmse_to_kr") is not None:
        compared = f" KR_SML's is {numbers.span(f'{OURS}.test_rmse_to_kr', RATIO)} times KR's."
    if numbers.at("protocol") == "paper":
        caveat = (
            " KR_SML runs as the product trains it, KR, KR_PCA and MLKR as in the paper: not all of the difference is "
            'the metric\'s (<a href="#made">how this was made</a>).'
        )
    return (
        f"On {numbers.span(f'{OURS}.wins.test.rmse')} of {numbers.span('summary.n_links')} links KR_SML had the "
        f"smallest test RMSE of all methods, over {numbers.span('summary.n_scored')} scored slots. In geometric mean "
        f"over the links the test RMSE was {', '.join(means[:-1])} and {means[-1]}.{compared}{caveat}"
    )


def _training_against_test(numbers: Numbers) -> str:
    wins = [
        [numbers.at(f"summary.methods.{at}.wins.{part}.rmse") for part in ("train", "test")]
        for at in range(len(METHODS))
    ]
    fallen = max(range(len(METHODS)), key=lambda at: wins[at][0] - wins[at][1])
    if wins[fallen][0] <= wins[fallen][1]:
        return ""
    train, test = (numbers.span(f"summary.methods.{fallen}.wins.{part}.rmse") for part in ("train", "test"))
    meaning = (
        "part of what it learnt holds for the training days alone"
        if fallen in LEARNS_A_METRIC
        else "its place on the training days does not carry over"
    )
    return (
        f"{METHODS[fallen]} had the smallest training RMSE on {train} of {numbers.span('summary.n_links')} links and "
        f"the smallest test RMSE on {test}: {meaning}. Judge a method by the test days."
    )


def _geh(numbers: Numbers) -> str:
    share, wape = (numbers.span(f"{OURS}.mean.test.{name}", SHARE) for name in ("geh_pass_share", "wape"))
    limit, least = numbers.span("options.geh_limit"), numbers.span("options.geh_share", LEVEL)
    return (
        f"KR_SML passes the GEH criterion, GEH below {limit} in at least {least} of slots, on "
        f"{numbers.span(f'{OURS}.geh_links_passed')} of {numbers.span('summary.n_links')} "
        f"links; in the mean over links {share} of the slots are below {limit}. Its WAPE is {wape} in the mean: so "
        "many vehicles in a hundred counted were expected too many or too few."
    )


def _intervals(numbers: Numbers) -> str:
    paths = [f"summary.methods.{at}.mean.test.coverage" for at in range(len(METHODS))]
    means, level = [numbers.at(path) for path in paths], numbers.at("options.level")
    short = [at for at, mean in enumerate(means) if mean is not None and mean < level - SHORT]
    sentence = (
        f"KR_SML's interval, meant to hold {numbers.span('options.level', LEVEL)} of the counts, held "
        f"{numbers.span(paths[KR_SML], SHARE)} in the mean over links"
    )
    sentence += f": {STRAYED}." if KR_SML in short else "."
    worst = min(short, key=lambda at: means[at], default=KR_SML)
    if means[worst] == means[KR_SML]:
        return sentence
    why = OVERFITS if worst == MLKR and numbers.at("protocol") == "paper" else STRAYED
    return f"{sentence} {METHODS[worst]}'s held {numbers.span(paths[worst], SHARE)}: {why}."


def _skill(numbers: Numbers) -> str:
    paths = [f"{OURS}.mean.test.{name}" for name in ("skill_profile", "skill_last_week")]
    if None in [numbers.at(path) for path in paths]:
        return ""
    profile, week = (numbers.span(path, SHARE) for path in paths)
    verdict = (
        "it is better than the calendar alone"
        if numbers.at(paths[0]) > 0
        else "on these days the calendar alone is as good or better"
    )
    return (
        f"Against the link's profile, its usual count at that weekday and time of day, KR_SML's skill is {profile} "
        f"in the mean: {verdict}. Against the same slot last week it is {week}."
    )


def made(numbers: Numbers) -> list[str]:
    """Return how the report was made, as far as it depends on the run, a paragraph each."""
    days = " + ".join(numbers.span(f"options.{key}") for key in ("train_days", "test_days"))
    begin = numbers.at("options.first_day") or "each link's first whole local day"
    also = "; the same for its siblings, as far as they have them" if numbers.at("protocol") == "product" else ""
    fewer = (
        " That is fewer than the product's usual 7, because the training span is short."
        if numbers.at("options.held_out_days_reduced")
        else ""
    )
    return [
        f"Days: {days} (learnt from + forecast), from {begin} on. Each test slot is forecast one slot ahead from the "
        f"true {numbers.span('links.0.d')} counts before it; a gap among them is filled with the link's profile. Every "
        "count of the test days is scored, suspect and imputed ones too; a slot without a count is not.",
        _protocol(numbers),
        f"Chosen on the last {numbers.span('options.held_out_days')} of the training days, and never on the test days: "
        f"KR_SML's μ, its number of steps and the share of the level it keeps{also}. “best” is chosen on the same days "
        "as training does: NETWORK, its linear base, KR_SML or KR, or the profile where none of them is better by the "
        f"product's margin.{fewer}",
    ]


def _protocol(numbers: Numbers) -> str:
    k = ", ".join(f"{method} {numbers.span(f'links.0.methods.{at}.k')}" for at, method in enumerate(METHODS))
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
