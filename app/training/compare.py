"""Decide whether a candidate is better than the active model and the profile."""

from __future__ import annotations

from typing import Any, NamedTuple

MEASURE = "rmse"  # one slot ahead, on the held-out slots that every method has a forecast for


class Decision(NamedTuple):
    """The decision on a candidate, with the reason."""

    activate: bool
    reason: str
    profile_won: bool = False


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
                profile_won=name == "the profile",
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
