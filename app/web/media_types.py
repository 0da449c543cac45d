"""Which of the offered media types a caller would rather have, by its Accept header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence


def preferred(accept: str | None, offered: Sequence[str]) -> str:
    """Choose among the offered types; the first of them where the caller has no wish that can be met."""
    wishes = [_wish(part) for part in (accept or "*/*").split(",")]
    qualities = {media_type: _quality(media_type, wishes) for media_type in offered}
    return max(offered, key=lambda media_type: qualities[media_type])  # of equals, max takes the first


def _wish(part: str) -> tuple[str, float]:
    media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                quality = min(1.0, max(0.0, float(parameter[2:])))
            except ValueError:
                quality = 0.0
    return media_type, quality


def _quality(media_type: str, wishes: Sequence[tuple[str, float]]) -> float:
    """Let the most specific wish decide."""
    for pattern in (media_type, media_type.split("/")[0] + "/*", "*/*"):
        for wished, quality in wishes:
            if wished == pattern:
                return quality
    return 0.0
