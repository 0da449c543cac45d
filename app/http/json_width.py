"""Objects with more keys than any of ours has: each would become an error of a kilobyte before all are refused."""

from __future__ import annotations

from typing import Any

MOST_KEYS = 100


def narrow(value: Any) -> Any:
    """Give JSON back as it is, unless an object in it has more keys than any that is known."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if len(part) > MOST_KEYS:
                raise ValueError(f"it must not hold an object of {len(part)} keys; {MOST_KEYS} are the most")
            waiting += [inner for inner in part.values() if isinstance(inner, dict | list)]
        elif isinstance(part, list):
            waiting += [inner for inner in part if isinstance(inner, dict | list)]
    return value
