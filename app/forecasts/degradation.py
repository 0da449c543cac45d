"""Why a forecast is worse than the evidence allows."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Degradation(StrEnum):
    """The kinds of reasons, by which Prometheus counts degraded forecasts."""

    NO_MODEL = "no_model"
    DAMAGED_MODEL = "damaged_model"
    GAPS = "gaps"
    NO_PROFILE = "no_profile"
    FAILED = "failed"
    STALE = "stale"
    OTHER = "other"


class Reason(NamedTuple):
    """Why a forecast is degraded: the kind, and the text that callers get, with names and numbers."""

    kind: Degradation
    text: str
