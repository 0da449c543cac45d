"""Settings of what happens by itself: how models are retrained, and what is let go of."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings

from app.settings.addresses import DaskAway, check_dask_address

LEAST_DAYS = 56  # that a schedule keeps; a test holds it to what retraining reads
RETRAIN_ALGORITHMS = ("best", "NETWORK", "KR_SML", "MLKR", "KR", "KR_PCA")


class RetrainSettings(BaseSettings):
    """The part of Flowcast's settings that the worker goes by."""

    retrain_margin: float = Field(
        0.005,
        ge=0,
        lt=1,
        description="Share by which a candidate's RMSE must lie below the active model's and the profile's",
    )
    retrain_jobs: int = Field(-1, description="Processes that a retrain run trains in; -1 for one a core")
    dask_scheduler: Annotated[str, AfterValidator(check_dask_address)] = Field(
        "", description="Dask scheduler whose workers train retrain runs, `tcp://HOST:PORT` or `tls://HOST:PORT`"
    )
    dask_away: DaskAway = Field(
        DaskAway.LOCAL, description="While that scheduler is away: `local` trains in local processes, `wait` waits"
    )
    retrain_schedule: str = Field(
        "", description="When to retrain all links, in cron syntax and UTC, such as `0 3 * * 1`; never by default"
    )
    retrain_algorithm: str = Field(
        "best",
        description="What the schedule and the trigger train: `best`, `NETWORK`, `KR_SML`, `MLKR`, `KR` or `KR_PCA`",
    )
    refresh_schedule: str = Field(
        "",
        description="When new counts join the memories of network models, in cron syntax and UTC, such as `30 2 * * *`"
        "; never by default",
    )
    holidays: str = Field(
        "auto",
        description="Whose public holidays networks count as Sundays: `auto` for the country of the time zone, `off`, "
        "a country such as `AU`, or a part of one such as `AU-VIC`",
    )
    retrain_trigger: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Retrain a link whose realised RMSE exceeds so many times the held-out RMSE of its active model; "
        "above 1, or 0 for off",
    )
    retrain_trigger_window_hours: int = Field(
        24, ge=1, le=744, description="Hours up to the newest count over which that realised RMSE is measured"
    )
    retrain_trigger_cool_down_hours: int = Field(
        24, ge=0, le=8760, description="Hours after a link's last retrain run before the trigger may take it up again"
    )
    prune_days: int = Field(
        0, le=36_500, description="Days of counts and forecasts that `FLOWCAST_PRUNE_SCHEDULE` keeps; 0 for all"
    )
    prune_record_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="Days of audit and finished runs that `FLOWCAST_PRUNE_SCHEDULE` keeps; 0 for all",
    )
    prune_schedule: str = Field(
        "", description="When to remove what is older, in cron syntax and UTC, such as `15 1 * * *`; never by default"
    )
    keep_retired: int = Field(
        3, ge=1, le=1000, description="Retired versions, and as many candidates, that a link keeps"
    )

    @field_validator("retrain_algorithm")
    @classmethod
    def _known_algorithm(cls, algorithm: str) -> str:
        if algorithm not in RETRAIN_ALGORITHMS:
            raise ValueError(f"it must be one of {', '.join(RETRAIN_ALGORITHMS)}")
        return algorithm

    @field_validator("holidays")
    @classmethod
    def _known_holidays(cls, holidays: str) -> str:
        if holidays not in ("auto", "off"):
            from app.core.network_calendar import (
                holidays_of,  # loaded only where they are named: the calendars are large
            )

            return holidays_of("", holidays)
        return holidays

    @field_validator("retrain_schedule", "refresh_schedule", "prune_schedule")
    @classmethod
    def _cron(cls, schedule: str) -> str:
        if schedule.strip():
            # Loaded only where there is a schedule: it brings a parser of dates along.
            from app.core.cron import check_cron

            check_cron(schedule)
        return schedule.strip()

    @field_validator("prune_schedule")
    @classmethod
    def _with_days(cls, schedule: str, info: ValidationInfo) -> str:
        days = [info.data.get(name, "refused") for name in ("prune_days", "prune_record_days")]
        if schedule and days == [0, 0]:
            raise ValueError("it must go with FLOWCAST_PRUNE_DAYS or FLOWCAST_PRUNE_RECORD_DAYS, which say what is old")
        return schedule

    @field_validator("prune_days")
    @classmethod
    def _enough_days(cls, days: int) -> int:
        if days and days < LEAST_DAYS:
            raise ValueError(f"it must be at least {LEAST_DAYS}, which retraining reads, or 0 to keep all")
        return days

    @field_validator("retrain_trigger")
    @classmethod
    def _above_one(cls, ratio: float) -> float:
        if 0 < ratio <= 1:
            raise ValueError("it must be above 1, or 0 for off")
        return ratio
