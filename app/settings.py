"""All settings in one class: ``FLOWCAST_…`` variables, or files for secrets."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SecretsSettingsSource, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from app.core.slots import zone_named
from app.core.times import check_cron

PLACEHOLDERS = ("change-me", "changeme", "secret", "admin", "password")
LEAST_KEY = 16
SECRETS = "/run/secrets"  # the folder that container engines use
LEAST_DAYS = 56  # that a schedule keeps: retraining reads them
ModelAlgorithm = Literal["KR_SML", "MLKR", "KR", "KR_PCA", "NETWORK"]
Algorithm = Literal[ModelAlgorithm, "best"]  # of a retrain run
HOST = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?")
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
PREFIX = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*)?")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
DASK_ADDRESS = re.compile(
    r"(?:tcp|tls)://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})"
)


class ClockKind(StrEnum):
    """The clocks of a service."""

    WALL = "wall"
    FEED = "feed"


class Switch(StrEnum):
    """On or off, written out."""

    ON = "on"
    OFF = "off"


class DaskFallback(StrEnum):
    """Ways to go on with a retrain run while the Dask scheduler is unreachable."""

    LOCAL = "local"
    WAIT = "wait"


def read_store(given: Path | str) -> Path | str:
    """Return the folder, or ``s3://BUCKET/PREFIX``; raise ``ValueError`` with the rule for anything else."""
    if isinstance(given, Path):
        return given
    if given.startswith("s3:"):
        return _read_bucket(given.removeprefix("s3:").removeprefix("//").rstrip("/"))
    if given.startswith("file:"):
        given = given.removeprefix("file:")
        if given.startswith("//"):
            given = given[2:]
            if not given.startswith("/"):
                raise ValueError("it must be written as file:PATH or file:///PATH, without a host")
    elif SCHEME.match(given):
        raise ValueError("it must be a folder, file:PATH or s3://BUCKET/PREFIX")
    if not given:
        raise ValueError("it must name a folder after file:")
    return Path(given)


def _read_bucket(address: str) -> str:
    bucket, _, prefix = address.partition("/")
    if not BUCKET.fullmatch(bucket) or not PREFIX.fullmatch(prefix):
        raise ValueError("it must be written as s3://BUCKET/PREFIX; credentials go into AWS_… variables")
    if find_spec("s3fs") is None:
        raise ValueError("it needs packages that are not installed: pip install 'flowcast[s3]'")
    return f"s3://{address}"


def check_dask_address(address: str) -> str:
    """Raise ``ValueError`` if a text is no scheduler's address, or Dask is not installed; an empty one means none."""
    if not (address := address.strip()):
        return address
    found = DASK_ADDRESS.fullmatch(address)
    if found is None or not 1 <= int(found["port"]) <= 65_535:
        raise ValueError("it must be written as tcp://HOST:PORT or tls://HOST:PORT")
    if find_spec("distributed") is None:
        raise ValueError("it needs Dask, which is not installed: pip install --requirement requirements/cluster.txt")
    return address


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and the port of a Dask scheduler's address."""
    found = DASK_ADDRESS.fullmatch(address)
    assert found is not None
    return found["host"].strip("[]"), int(found["port"])


def check_schedule(schedule: str) -> str:
    """Raise ``ValueError`` if a text is no cron expression; an empty one means never."""
    if schedule := schedule.strip():
        check_cron(schedule)
    return schedule


StoreAddress = Annotated[Path | str, BeforeValidator(read_store)]  # a path is a folder, a string a bucket
TILES = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]+)?/[!-~]*")


def check_tiles(template: str) -> str:
    """Return the address of map tiles if it is a template of one origin."""
    if template and not (
        TILES.fullmatch(template)
        and all(f"{{{name}}}" in template for name in "zxy")
        and set(re.findall(r"{[^}]*}?", template)) <= {"{z}", "{x}", "{y}", "{r}"}
    ):
        raise ValueError(
            "it must be an address of one host with {z}, {x} and {y}, such as https://HOST/{z}/{x}/{y}.png"
        )
    return template


MapTiles = Annotated[str, AfterValidator(check_tiles)]
DaskAddress = Annotated[str, AfterValidator(check_dask_address)]
CronSchedule = Annotated[str, AfterValidator(check_schedule)]


class SecretFiles(SecretsSettingsSource):
    """Settings as files of their own, such as ``flowcast_admin_key``; an empty file sets nothing."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Read a setting's file, if there is one."""
        try:
            value, key, is_complex = super().get_field_value(field, field_name)
        except (OSError, ValueError) as problem:
            file = f"flowcast_{field_name} in {self.secrets_dir}"
            raise ValueError(f"{file} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
        return value or None, key, is_complex


class Settings(BaseSettings):
    """Flowcast's settings.

    Each is read from the environment under its name in capitals with ``FLOWCAST_`` before, or else from the file
    of that name, in small letters, in the folder ``FLOWCAST_SECRETS``.
    """

    model_config = SettingsConfigDict(env_prefix="FLOWCAST_", env_ignore_empty=True)

    # Retraining, and removing old rows.
    retrain_margin: float = Field(
        0.005,
        ge=0,
        lt=1,
        description="Share by which the RMSE of a candidate must be below that of the active model and of the profile, "
        "or that of the aggregate of experts with the candidate below that without it",
    )
    retrain_jobs: int = Field(-1, description="Training processes of a retrain run; -1 for one per core")
    dask_scheduler: DaskAddress = Field(
        "", description="Dask scheduler whose workers train retrain runs, `tcp://HOST:PORT` or `tls://HOST:PORT`"
    )
    dask_away: DaskFallback = Field(
        DaskFallback.LOCAL,
        description="While that scheduler is unreachable: `local` trains in local processes, `wait` waits",
    )
    retrain_schedule: CronSchedule = Field(
        "", description="When to retrain all links, in cron syntax and UTC, such as `0 3 * * 1`; never by default"
    )
    retrain_algorithm: Algorithm = Field(
        "best",
        description="What the schedule and the trigger train: `best`, `NETWORK`, `KR_SML`, `MLKR`, `KR` or `KR_PCA`",
    )
    refresh_schedule: CronSchedule = Field(
        "",
        description="When new counts join the memories of network models, in cron syntax and UTC, such as `30 2 * * *`"
        "; never by default",
    )
    map_tiles: MapTiles = Field(
        "", description="Base map of the operators' page: `https://HOST/{z}/{x}/{y}.png`; none if empty"
    )
    map_attribution: str = Field("", max_length=300, description="Text below the base map, as its provider asks for it")
    holidays: str = Field(
        "auto",
        description="Public holidays that networks count as Sundays: `auto` for the country of the time zone, `off`, "
        "a country such as `AU`, or a part of one such as `AU-VIC`",
    )
    retrain_trigger: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Retrain a link whose realised RMSE exceeds so many times the held-out RMSE of its active model "
        "or ensemble; above 1, or 0 for off",
    )
    retrain_trigger_window_hours: int = Field(
        24, ge=1, le=744, description="Hours up to the newest count over which that realised RMSE is measured"
    )
    retrain_trigger_cool_down_hours: int = Field(
        24, ge=0, le=8760, description="Hours after a link's last retrain run before the trigger may retrain it again"
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
    prune_schedule: CronSchedule = Field(
        "", description="When to remove what is older, in cron syntax and UTC, such as `15 1 * * *`; never by default"
    )
    keep_retired: int = Field(
        3, ge=1, le=1000, description="Retired versions, and as many candidates, that a link keeps of an algorithm"
    )

    # The service.
    database_url: str = Field(
        "sqlite:///flowcast.db", description="Database: `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`"
    )
    database_password: SecretStr | None = Field(
        None, description="Password for a PostgreSQL whose `FLOWCAST_DATABASE_URL` has none"
    )
    model_store: StoreAddress = Field(
        Path("models"),
        description="Where the artifacts of trained models are: a folder, `file:PATH`, or `s3://BUCKET/PREFIX`",
    )
    model_cache: Path = Field(
        Path("model-cache"), description="Folder for copies of the artifacts in a bucket; unused without one"
    )
    model_cache_megabytes: int = Field(
        4096, ge=1, description="Size above which copies unused for an hour are removed from that folder"
    )
    clock: ClockKind = Field(
        ClockKind.WALL, description="Where now comes from: `wall`, or `feed` for the end of the newest slot seen"
    )
    default_zone: str = Field(
        "", description="IANA time zone of new links that name none; by default a new link must name one"
    )
    auth: Switch = Field(Switch.ON, description="`off` serves everyone without a key; meant for a closed machine only")
    admin_key: SecretStr | None = Field(
        None, description="A key with every scope, at least 16 characters; without it a first start creates one"
    )
    admin_key_file: Path = Field(
        Path("admin.key"), description="Where a first start without a terminal writes the key it created"
    )
    grafana_password: SecretStr | None = Field(
        None, description="Password of Grafana's user `admin` in containers, at least 16 characters"
    )
    build_revision: str = Field("unknown", description="Commit that this build was made from; the image sets it")
    stale_after_minutes: int = Field(
        90,
        ge=1,
        description="Age of a link's newest count, in minutes, above which the profile forecasts the slots from now on",
    )
    mare_min_count: int = Field(1, ge=1, description="Smallest count that MARE is computed over")
    models_in_memory: int = Field(
        5000,
        ge=1,
        description="Trained models that a process keeps loaded; above that the least recently used are dropped",
    )
    max_body_megabytes: int = Field(
        32,
        ge=1,
        description="Largest body of `POST /v1/counts`, in megabytes, unpacked; links have 8 MB, others 1 MB",
    )
    max_bodies_megabytes: int = Field(
        256,
        ge=1,
        description="Largest sum of the bodies of all requests under way in one process, in megabytes, after "
        "decompression; more get 503",
    )
    max_import_megabytes: int = Field(512, ge=1, description="Largest file of `POST /v1/import`, in megabytes")
    max_unpacked_megabytes: int = Field(
        4096, ge=1, description="Most that a file of counts packed with gzip or zip may unpack to, in megabytes"
    )
    max_batch: int = Field(100_000, ge=1, description="Most counts in one `POST /v1/counts`")
    header_seconds: float = Field(
        10, gt=0, le=3600, description="Longest, in seconds, that a request's line and headers may take to arrive"
    )
    body_seconds: float = Field(
        30,
        gt=0,
        le=3600,
        description="Longest, in seconds, that a client may keep the service waiting with a body, or with reading "
        "of an answer, beyond what it takes at 4 kB a second",
    )
    rate_limit: int = Field(60_000, ge=0, description="Requests per minute of one key to one process; 0 for no limit")
    max_waiting: int = Field(
        32,
        ge=1,
        description="Requests that may wait in one process; more get 503, reads from half of it",
    )
    webhook_hosts: str = Field(
        "",
        description="Hosts, comma-separated, that webhooks may point to: `HOST` for ports 80 and 443, or `HOST:PORT`; "
        "none by default",
    )
    stream_seconds: float = Field(
        3600, gt=0, description="Longest that an event stream lasts, in seconds; clients connect again"
    )
    max_streams: int = Field(100, ge=1, description="Event streams that one process keeps open; more get 503")
    cors_origins: str = Field("", description="Origins, comma-separated, whose pages may call the API; none by default")
    trusted_proxies: str = Field(
        "127.0.0.1", description="Addresses, comma-separated, whose forwarded headers are trusted"
    )
    root_path: str = Field("", description="Path prefix that a reverse proxy strips")
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(str.lower)] = Field(
        "info", description="`debug`, `info`, `warning` or `error`"
    )

    @field_validator("holidays")
    @classmethod
    def _known_holidays(cls, holidays: str) -> str:
        if holidays in ("auto", "off"):
            return holidays
        from app.core.holidays import holiday_region  # only where a country is named: the calendars are large

        return holiday_region("", holidays)

    @field_validator("retrain_trigger")
    @classmethod
    def _above_one(cls, ratio: float) -> float:
        if 0 < ratio <= 1:
            raise ValueError("it must be above 1, or 0 for off")
        return ratio

    @field_validator("retrain_jobs")
    @classmethod
    def _not_zero(cls, jobs: int) -> int:
        if jobs == 0:
            raise ValueError("it must be a number of processes, or -1 for one per core")
        return jobs

    @field_validator("prune_days")
    @classmethod
    def _enough_days(cls, days: int) -> int:
        if days and days < LEAST_DAYS:
            raise ValueError(f"it must be at least {LEAST_DAYS}, which retraining reads, or 0 to keep all")
        return days

    @field_validator("prune_schedule")
    @classmethod
    def _with_days(cls, schedule: str, info: ValidationInfo) -> str:
        days = [info.data.get(name, "refused") for name in ("prune_days", "prune_record_days")]
        if schedule and days == [0, 0]:
            raise ValueError("it must go with FLOWCAST_PRUNE_DAYS or FLOWCAST_PRUNE_RECORD_DAYS")
        return schedule

    @field_validator("admin_key", "grafana_password")
    @classmethod
    def _no_placeholder(cls, key: SecretStr | None) -> SecretStr | None:
        if key is None:
            return None
        if len(key.get_secret_value()) < LEAST_KEY or _is_placeholder(key):
            raise ValueError(f"it must have at least {LEAST_KEY} characters and be no placeholder")
        return key

    @field_validator("database_url")
    @classmethod
    def _with_driver(cls, url: str) -> str:
        if url.startswith(("postgresql://", "postgres://")):
            url = "postgresql+psycopg://" + url.split("://", 1)[1]
        if not url.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("it must begin with sqlite:/// or postgresql://")
        try:
            make_url(url)
        except (ArgumentError, ValueError):  # its message may repeat a password
            raise ValueError("it must be written as postgresql://USER:PASSWORD@HOST:PORT/NAME") from None
        if url in ("sqlite:///", "sqlite:///:memory:"):  # each connection would have a database of its own
            raise ValueError("it must name a file after sqlite:///")
        return url

    @field_validator("database_password")
    @classmethod
    def _where_it_belongs(cls, password: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if password is None or "database_url" not in info.data:  # the address itself was refused
            return password
        if _is_placeholder(password):
            raise ValueError("it must be no placeholder")
        url = make_url(info.data["database_url"])
        if url.get_backend_name() != "postgresql":
            raise ValueError("it must go with a FLOWCAST_DATABASE_URL that begins with postgresql://")
        if url.password is not None:
            raise ValueError("it must go with a FLOWCAST_DATABASE_URL that has no password of its own")
        return password

    @model_validator(mode="after")
    def _with_password(self) -> Settings:
        """Add the password to the address, whatever characters it has."""
        if self.database_password is not None:
            url = make_url(self.database_url).set(password=self.database_password.get_secret_value())
            self.database_url = url.render_as_string(hide_password=False)
        return self

    @field_validator("default_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        return zone_named(name).key if name else name

    @field_validator("webhook_hosts")
    @classmethod
    def _hosts(cls, hosts: str) -> str:
        if wrong := [host for host in _listed(hosts) if not HOST.fullmatch(host)]:
            raise ValueError(f"it must list hosts as HOST or HOST:PORT; {wrong[0]!r} is neither")
        return hosts

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the environment first, then the files in the folder of secrets, if it exists."""
        folder = Path(os.environ.get("FLOWCAST_SECRETS") or SECRETS)
        files = (SecretFiles(settings_cls, secrets_dir=folder),) if folder.is_dir() else ()
        return init_settings, env_settings, *files

    @property
    def allowed_webhook_hosts(self) -> frozenset[str]:
        """Return the hosts of ``webhook_hosts``, in small letters."""
        return frozenset(host.lower() for host in _listed(self.webhook_hosts))

    @property
    def allowed_origins(self) -> list[str]:
        """Return the origins of ``cors_origins``."""
        return _listed(self.cors_origins)


# Of settings that are refused; an address that cannot be parsed may hold a password anywhere.
NEVER_SHOWN = ("admin_key", "database_password", "grafana_password", "database_url", "model_store")


def is_secret(name: str, value: object) -> bool:
    """Return whether a setting's value must not be shown; an address may hold a password."""
    return isinstance(value, SecretStr) or (name == "database_url" and make_url(str(value)).password is not None)


def _is_placeholder(secret: SecretStr) -> bool:
    return secret.get_secret_value().lower().startswith(PLACEHOLDERS)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@lru_cache
def settings_from_environment() -> Settings:
    """Read the settings once."""
    return Settings()
