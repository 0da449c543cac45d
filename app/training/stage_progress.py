"""The progress of training a network, and the time that it may still take."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

SHARE = "share.txt"
# Parts in their order, with the share of the time that each took for 70 links and 24 days.
PARTS = {"context": 0.35, "metric": 0.2, "memory": 0.15, "shares": 0.15, "last memory": 0.15}


def share_done(part: str, done: int, of: int) -> float:
    """Return the share of a network's training that is done when so many steps of a part are."""
    names = list(PARTS)
    before = sum(PARTS[name] for name in names[: names.index(part)])
    return before + PARTS[part] * done / max(of, 1)


def seconds_left(share: float, elapsed: float) -> float | None:
    """Estimate the rest from the share that is done and the seconds it took; None before anything is done."""
    return elapsed * (1.0 - share) / share if share > 0.0 else None


def write_share(folder: Path, part: str, done: int, of: int) -> None:
    """Write the share into the folder of a stage, where the process that waits for the stage reads it."""
    (folder / SHARE).write_text(f"{share_done(part, done, of):.4f}", encoding="utf-8")


def read_share(folder: Path) -> float:
    """Read the share that was written last; 0 before the first, or while it is being written."""
    with suppress(OSError, ValueError):
        return float((folder / SHARE).read_text(encoding="utf-8"))
    return 0.0
