"""Everything that can be set from outside, in one class: ``FLOWCAST_…`` environment variables."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PLACEHOLDERS = ("change-me", "changeme", "secret", "admin", "password")
LEAST_KEY = 16


class ClockKind(StrEnum):
    """Where now comes from."""

    WALL = "wall"
    FEED = "feed"


class Switch(StrEnum):
    """On or off, written out."""

    ON = "on"
    OFF = "off"


class Settings(BaseSettings):
    """Flowcast's settings; each is read from the environment under its name in capitals with ``FLOWCAST_`` before."""

    model_config = SettingsConfigDict(env_prefix="FLOWCAST_", env_ignore_empty=True)

    database_url: str = Field(
        "sqlite:///flowcast.db", description="Database: `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`"
    )
    model_store: Path = Field(Path("models"), description="Folder for the artifacts of trained models")
    clock: ClockKind = Field(
        ClockKind.WALL, description="Where now comes from: `wall`, or `feed` for the end of the newest slot seen"
    )
    auth: Switch = Field(Switch.ON, description="`off` serves everyone without a key; meant for a closed machine only")
    admin_key: SecretStr | None = Field(
        None, description="A key with every scope, at least 16 characters; without it a first start makes one"
    )
    admin_key_file: Path = Field(
        Path("admin.key"), description="Where a first start without a terminal writes the key it made"
    )
    stale_after_minutes: int = Field(
        90,
        ge=1,
        description="Age of a link's newest count, in minutes, past which its forecasts fall back to the profile",
    )
    mare_min_count: int = Field(1, ge=1, description="Smallest count that MARE is computed over")
    models_in_memory: int = Field(
        5000, ge=1, description="Trained models a process keeps loaded; the least recently used leave first"
    )
    max_body_megabytes: int = Field(32, ge=1, description="Largest request body, in megabytes, after decompression")
    max_import_megabytes: int = Field(512, ge=1, description="Largest file `POST /v1/import` takes, in megabytes")
    max_batch: int = Field(100_000, ge=1, description="Most counts in one `POST /v1/counts`")
    rate_limit: int = Field(
        60_000, ge=0, description="Requests a minute that one key may send to one process; 0 for no limit"
    )
    cors_origins: str = Field("", description="Origins, comma-separated, whose pages may call the API; none by default")
    trusted_proxies: str = Field(
        "127.0.0.1", description="Addresses, comma-separated, whose forwarded headers are believed"
    )
    root_path: str = Field("", description="Path prefix that a reverse proxy strips")
    log_level: str = Field("info", description="`debug`, `info`, `warning` or `error`")

    @field_validator("admin_key")
    @classmethod
    def _no_placeholder(cls, key: SecretStr | None) -> SecretStr | None:
        if key is None:
            return None
        text = key.get_secret_value()
        if len(text) < LEAST_KEY or any(text.lower().startswith(placeholder) for placeholder in PLACEHOLDERS):
            raise ValueError(f"it must have at least {LEAST_KEY} characters and be no placeholder")
        return key

    @field_validator("database_url")
    @classmethod
    def _with_driver(cls, url: str) -> str:
        if url.startswith(("postgresql://", "postgres://")):
            return "postgresql+psycopg://" + url.split("://", 1)[1]
        if not url.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("it must begin with sqlite:/// or postgresql://")
        if url in ("sqlite:///", "sqlite:///:memory:"):  # each connection would have a database of its own
            raise ValueError("it must name a file after sqlite:///")
        return url

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, level: str) -> str:
        if level.lower() not in ("debug", "info", "warning", "error"):
            raise ValueError("it must be debug, info, warning or error")
        return level.lower()

    @property
    def allowed_origins(self) -> list[str]:
        """The origins of ``cors_origins``, one by one."""
        return [origin.strip() for origin in self.cors_origins.split(",") if origin.strip()]


@lru_cache
def settings_from_environment() -> Settings:
    """Read the settings once."""
    return Settings()
