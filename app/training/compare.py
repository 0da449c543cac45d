"""Decide whether a candidate is better than the active model and the profile, or makes the aggregate better."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Any, NamedTuple

MEASURE = "rmse"  # one slot ahead, on the held-out slots that every method has a forecast for
ENSEMBLE, BEFORE = "ENSEMBLE", "ENSEMBLE before"  # the aggregates of experts with all candidates, and with none


class Decision(NamedTuple):
    """The decision on a candidate, with the reason."""

    activate: bool
    reason: str


NOTHING_ACTIVATED = Decision(False, "the run activates no candidate, because its field activate is never")


def decide(
    held_out: dict[str, Any], mode: str, margin: float, *, served: bool = False, young: bool = False
) -> Decision:
    """Compare candidate, active model and profile on the same held-out slots.

    With ``if_better`` the candidate's RMSE must be below both others' by the margin, a share of theirs. A link that
    is too young to be measured, and has no model yet, gets the one of its network. ``served`` is whether the link
    has an active model: without one there was none to measure.
    """
    if mode == "never":
        return NOTHING_ACTIVATED
    if mode == "always":
        return Decision(True, "the run activates every candidate, because its field activate is always")
    candidate = _error(held_out, "candidate")
    if candidate is None and young and "active" not in held_out:
        return Decision(True, "too few counts to measure it; activated because the link has no model")
    if candidate is None:
        return Decision(False, "there was no held-out slot to measure the candidate on")
    references = {"the active model": _error(held_out, "active"), "the profile": _error(held_out, "profile")}
    for name, error in references.items():
        if error is not None and not candidate < (1.0 - margin) * error:
            return Decision(
                False,
                f"RMSE {candidate:.4g} is not {margin:.1%} below that of {name}, {error:.4g}, on the held-out days",
            )
    beaten = " and ".join(f"{name} ({error:.4g})" for name, error in references.items() if error is not None)
    expected = references if served else ["the profile"]
    missing = ", ".join(name for name in expected if references[name] is None)
    unmeasured = f"; {missing} could not be measured" if missing else ""
    if not beaten:
        return Decision(True, f"RMSE {candidate:.4g} on the held-out days, and nothing to compare with{unmeasured}")
    return Decision(
        True, f"RMSE {candidate:.4g} is more than {margin:.1%} below {beaten} on the held-out days{unmeasured}"
    )


def aggregate_name(chosen: Collection[str], candidates: Collection[str]) -> str:
    """Return the name of the aggregate with some of a link's candidates, and with the predecessors of the others."""
    if not chosen:
        return BEFORE
    return ENSEMBLE if len(chosen) == len(candidates) else f"{ENSEMBLE} with {' and '.join(sorted(chosen))}"


def decide_experts(
    held_out: dict[str, Any], candidates: Collection[str], mode: str, margin: float, *, young: bool = False
) -> dict[str, Decision]:
    """Compare the aggregates with and without each candidate of a link, by algorithm, on the same held-out slots.

    With ``if_better`` the candidate with the smaller RMSE of its aggregate comes first. A candidate is activated if
    its aggregate's RMSE is below that without it by the margin, a share of it; a candidate that was activated is in
    both. A link that is too young to be measured, and has no model yet, gets the one of its network.
    """
    if mode != "if_better" or _error(held_out, ENSEMBLE) is None:
        together = held_out | {"candidate": held_out[ENSEMBLE]}
        return dict.fromkeys(candidates, decide(together, mode, margin, young=young))

    def error_with(chosen: Collection[str]) -> float:
        error = _error(held_out, aggregate_name(chosen, candidates))
        return inf if error is None else error

    decisions: dict[str, Decision] = {}
    activated: list[str] = []
    for algorithm in sorted(candidates, key=lambda algorithm: error_with([algorithm])):
        chosen = [one for one in candidates if one == algorithm or one in activated]
        error, without = error_with(chosen), error_with(activated)
        is_better = error < (1.0 - margin) * without
        comparison = f"is {'more than' if is_better else 'not'} {margin:.1%} below {without:.4g} without {algorithm}"
        reason = f"RMSE {error:.4g} of the aggregate with {' and '.join(chosen)} {comparison}, on the held-out days"
        decisions[algorithm] = Decision(is_better, reason)
        activated = chosen if is_better else activated
    return decisions


def best_without_candidates(held_out: dict[str, Any]) -> str | None:
    """Return what forecasts a link best where no candidate is activated: the aggregate, what does now, or its profile.

    The profile counts only where no model forecasts the link now. None if nothing was measured.
    """
    served = "profile" if _error(held_out, "active") is None else "active"
    errors = {method: error for method in (BEFORE, served) if (error := _error(held_out, method)) is not None}
    return min(errors, key=lambda method: errors[method]) if errors else None


def decide_refreshed(about: dict[str, Any], mode: str) -> Decision:
    """Activate a refreshed model, unless ``mode`` is never; nothing was learnt anew that would have to be compared."""
    if mode == "never":
        return NOTHING_ACTIVATED
    return Decision(True, f"refreshed: counts up to {about['trained_to']} joined the memory")


def summary(held_out: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return the figures of each method as plain numbers."""
    return {
        method: {name: measure.get("value") for name, measure in figures.items()}
        for method, figures in held_out.items()
    }


def _error(held_out: dict[str, Any], method: str) -> float | None:
    value = held_out.get(method, {}).get(MEASURE, {}).get("value")
    return None if value is None else float(value)
