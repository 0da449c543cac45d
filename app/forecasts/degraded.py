"""Why forecasts are degraded, in few words to count by: what callers are told holds numbers and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

OTHER = "other"

# What the texts of each reason have in common, in the order in which they are looked for: the artifact of an
# older version may be damaged, too, so that is asked first.
PHRASES = {
    " is damaged: ": "damaged_model",
    "no trained model": "no_model",
    "was withdrawn": "no_model",
    "no count has come": "stale",
    "no profile": "no_profile",
    " failed: ": "failed",
    " lags ": "gaps",
    "the window reaches back": "gaps",
}


def reason_in_short(reason: str) -> str:
    """Give the one of ``app.core.metrics.DEGRADED`` that a reason told to callers belongs to."""
    return next((short for phrase, short in PHRASES.items() if phrase in reason), OTHER)


def tally_reasons(reasons: Iterable[str | None]) -> Counter[str]:
    """Count the forecasts that were degraded, by their reasons in short."""
    found: Counter[str] = Counter()
    for reason, n in Counter(reasons).items():
        if reason is not None:
            found[reason_in_short(reason)] += n
    return found
