"""``flowcast db copy``: between SQLite and a real PostgreSQL, with rows that are hard to carry."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import func, insert, select, text
from typer.testing import CliRunner, Result

from app.cli import cli
from app.counts.tables import Count
from app.database import open_database, reading, writing
from app.links.tables import Link
from app.maintenance.copy_database import all_tables
from app.maintenance.stored_rows import BATCH, rows_of
from app.monthly_tables import ensure_months
from app.schema import upgrade_schema
from app.settings import Settings, settings_from_environment
from app.tables import (
    Activation,
    ApiKey,
    AuditEntry,
    CountCorrection,
    Forecast,
    RetrainLink,
    RetrainRun,
    ShelvedModel,
    Upkeep,
    UpstreamLink,
    Webhook,
)
from tests.app.stored import put_rows

AT = datetime(2026, 3, 29, 1, 59, 59, 999_999, tzinfo=UTC)  # on the eve of a change of clocks, to the microsecond
NAME = "Straße „Łódź“ \N{SNOWMAN}\t\\N 'quoted' \"twice\"\nnext line \N{GRINNING FACE}"


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    settings_from_environment.cache_clear()
    yield
    settings_from_environment.cache_clear()


@pytest.fixture
def new_database(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Give addresses of databases with nothing in them, not even tables, or like another one of their kind."""
    made: list[str] = []

    def new(kind: str, like: str | None = None) -> str:
        name = f"copy_{uuid.uuid4().hex}"
        if kind == "sqlite":
            file = tmp_path / f"{name}.db"
            if like is not None:
                shutil.copy(like, file)
            return f"sqlite:///{file}"
        made.append(name)
        return create_in_postgresql(request, name, like)

    yield new
    for name in made:
        drop_in_postgresql(request, name)


@pytest.fixture(scope="module")
def original(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], str]]:
    """Give a database of a kind with rows in every table, filled once: its file, or its name."""
    made: dict[str, str] = {}

    def of(kind: str) -> str:
        if kind not in made and kind == "sqlite":
            made[kind] = str(tmp_path_factory.mktemp("filled") / "original.db")
            fill(f"sqlite:///{made[kind]}")
        elif kind not in made:
            made[kind] = f"original_{uuid.uuid4().hex}"
            fill(create_in_postgresql(request, made[kind]))
        return made[kind]

    yield of
    if "postgresql" in made:
        drop_in_postgresql(request, made["postgresql"])


@pytest.fixture
def filled_database(new_database: Callable[..., str], original: Callable[[str], str]) -> Callable[[str], str]:
    """Give addresses of databases with rows in every table."""
    return lambda kind: new_database(kind, original(kind))


def create_in_postgresql(request: pytest.FixtureRequest, name: str, like: str | None = None) -> str:
    address = request.getfixturevalue("postgresql")
    with psycopg.connect(address("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {like}" if like else ""))
    return str(address(name))


def drop_in_postgresql(request: pytest.FixtureRequest, name: str) -> None:
    with psycopg.connect(request.getfixturevalue("postgresql")("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def engine_of(url: str):
    return open_database(Settings(database_url=url).database_url)


def copy(source: str, target: str) -> Result:
    return CliRunner().invoke(cli, ["db", "copy", "--from", source, "--to", target])


def fill(url: str) -> None:
    """Put a row or more into every table, none of them easy."""
    engine = engine_of(url)
    upgrade_schema(engine)
    with writing(engine) as session:
        for key, link_id in ((1, "A"), (7, "b:._-"), (9, "gone")):
            geometry = {"type": "LineString", "coordinates": [[0.1, 1e-7], [1.0, 2]], "π": NAME}
            row = {"slot_minutes": 15, "zone": "Europe/Berlin", "created_at": AT, "updated_at": AT}
            session.execute(
                insert(Link).values(
                    link_key=key,
                    link_id=link_id,
                    name=NAME,
                    capacity=0.1 + 0.2 if key == 1 else None,
                    geometry=geometry if key == 1 else None,
                    **row,
                )
            )
        session.execute(insert(UpstreamLink).values(link_key=1, upstream_key=7))
        slots = [
            {"link_key": key, "slot_start": 900 * i, "count": i % 7, "quality": i % 3}
            for key, n in ((1, BATCH + 100), (7, 100))  # of the second, all in another batch
            for i in range(n)
        ]
        far = {"link_key": 7, "slot_start": 4_000_000_000, "count": 2_147_483_647, "quality": 0}
        put_rows(session, Count, [*slots, far])
        session.execute(
            insert(CountCorrection).values(id=41, link_key=1, slot_start=0, count=3, quality=2, replaced_at=AT)
        )
        ensure_months(session, "forecasts", [900])
        forecast = {"link_key": 1, "slot_start": 900, "horizon": 1, "level": 0.9, "method": 0, "filled_lags": 0}
        session.execute(
            insert(Forecast).values(
                **forecast, model_version=1, expected=1 / 3, lower=5e-324, upper=1.7e308, usual=None,
                degraded_reason=NAME, issued_at=1_774_749_599_999_999,
            )
        )  # fmt: skip
        session.execute(
            insert(Forecast).values(
                **forecast, model_version=0, expected=0.0, lower=None, upper=None, usual=2.5,
                degraded_reason=None, issued_at=1,
            )
        )  # fmt: skip
        for key_id in ("b-", "B_", "a", "Ä", "z"):  # in another order where the language has a say
            session.execute(
                insert(ApiKey).values(key_id=key_id, name=NAME, hash="0" * 64, scopes="read", created_at=AT)
            )
        session.execute(
            insert(ShelvedModel).values(
                id=5, link_key=1, version=1, state="active", algorithm="KR_SML", folder="A/1", fingerprint="f" * 64,
                rank=3, size_bytes=5_000_000_000, trained_from=AT - timedelta(days=22), trained_to=AT,
                about={"held_out": {"rmse": 1e-300, "n": 10**20, "text": NAME}, "none": None}, created_at=AT,
            )
        )  # fmt: skip
        session.execute(
            insert(Upkeep).values(
                kind="prune", moment=AT, worker="w", started_at=AT, heartbeat_at=AT, figures={"counts_removed": 10**20}
            )
        )
        session.execute(
            insert(Activation).values(
                id=3, link_key=1, version=1, activated_at=AT, activated_by="schedule", figures={"rmse": None}
            )
        )
        session.execute(
            insert(RetrainRun).values(
                id=12, state="succeeded", algorithm="KR_SML", parameters={}, activate="never", requested_by="someone",
                requested_at=AT, cancel_requested=True,
            )
        )  # fmt: skip
        session.execute(insert(RetrainLink).values(run_id=12, link_key=1, state="done", figures=None))
        session.execute(text("UPDATE retrain_links SET figures = NULL"))  # beside JSON's own null
        session.execute(insert(RetrainLink).values(run_id=12, link_key=7, state="failed", figures=None))
        session.execute(
            insert(AuditEntry).values(
                id=2, at=AT, key_id="k", key_name=NAME, method="PUT", path="/v1/links/ä", status=201, request_id="r",
                client="::1",
            )
        )  # fmt: skip
        session.execute(
            insert(Webhook).values(url="https://h/ü", events="forecast", secret="s", created_at=AT, created_by="k",
                                   last_activation=3, failures=0)
        )  # fmt: skip
    with writing(engine) as session:
        session.execute(text("DELETE FROM links WHERE link_id = 'gone'"))
    engine.dispose()


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    engine = engine_of(url)
    with engine.connect() as connection:
        found = {table.name: [tuple(row) for row in rows_of(connection, table)] for table in all_tables()}
    engine.dispose()
    return found


KINDS = [("sqlite", "postgresql"), ("postgresql", "sqlite"), ("sqlite", "sqlite"), ("postgresql", "postgresql")]


@pytest.mark.parametrize(("source_kind", "target_kind"), KINDS)
def test_every_row_of_every_table_arrives_as_it_was(filled_database, new_database, source_kind, target_kind):
    source, target = filled_database(source_kind), new_database(target_kind)
    done = copy(source, target)
    assert done.exit_code == 0, done.output
    before = contents(source)
    assert all(before.values())  # no table was left out of the test
    assert contents(target) == before
    assert f"{sum(map(len, before.values())):,} rows copied and compared" in done.stdout
    assert "FLOWCAST_MODEL_STORE" in done.stdout


@pytest.mark.parametrize(("source_kind", "target_kind"), KINDS)
def test_new_rows_get_numbers_that_were_never_given(filled_database, new_database, source_kind, target_kind):
    source, target = filled_database(source_kind), new_database(target_kind)
    assert copy(source, target).exit_code == 0
    engine = engine_of(target)
    with writing(engine) as session:
        link = Link(link_id="new", name="new", zone="UTC", slot_minutes=15, geometry=None, created_at=AT, updated_at=AT)
        run = RetrainRun(state="queued", algorithm="KR", parameters={}, activate="never", requested_by="x")
        run.requested_at = AT
        correction = CountCorrection(link_key=1, slot_start=900, count=1, quality=0, replaced_at=AT)
        session.add_all([link, run, correction])
        session.flush()
        # 9 was a link's that is gone; what still remembers it must not meet another. PostgreSQL's own
        # numbers were not used where rows were put in with theirs, so it knows only of those.
        assert link.link_key > (9 if source_kind == "sqlite" else 7)
        assert (run.id, correction.id) == (13, 42)
    engine.dispose()


def test_a_password_set_apart_goes_to_the_postgresql_that_has_none(filled_database, new_database, monkeypatch):
    source, target = filled_database("sqlite"), new_database("postgresql")
    monkeypatch.setenv("FLOWCAST_DATABASE_URL", "postgresql://flowcast@127.0.0.1:1/elsewhere")
    monkeypatch.setenv("FLOWCAST_DATABASE_PASSWORD", "9f86d081884c7d659a2f")  # any will do for this server
    settings_from_environment.cache_clear()
    done = copy(source, target.replace("postgres:@", "postgres@"))
    assert done.exit_code == 0, done.output
    failed = CliRunner().invoke(cli, ["db", "copy", "--to", new_database("sqlite")])
    assert failed.exit_code == 1
    assert "9f86d081884c7d659a2f" not in failed.output


class TestRefusals:
    def test_a_target_that_holds_rows_is_named_with_table_and_count(self, filled_database):
        source, target = filled_database("sqlite"), filled_database("postgresql")
        before = contents(target)
        refused = copy(source, target)
        assert refused.exit_code == 2
        assert "the target holds rows already: " in refused.stderr
        assert "in table " in refused.stderr
        assert contents(target) == before

    @pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
    def test_a_source_at_another_step(self, new_database, kind):
        source, target = new_database(kind), new_database("sqlite")
        engine = engine_of(source)
        upgrade_schema(engine, "0001")
        engine.dispose()
        refused = copy(source, target)
        assert refused.exit_code == 2
        assert "the source's schema is at step 0001" in refused.stderr

    def test_a_source_that_is_not_there_is_not_made(self, tmp_path):
        refused = copy(f"sqlite:///{tmp_path}/none.db", f"sqlite:///{tmp_path}/new.db")
        assert refused.exit_code == 2
        assert "no such file" in refused.stderr
        assert not list(tmp_path.iterdir())

    def test_a_database_is_not_copied_into_itself(self, filled_database, tmp_path):
        source = filled_database("sqlite")
        again = source.replace(str(tmp_path), f"{tmp_path}/../{tmp_path.name}")
        refused = copy(source, again)
        assert refused.exit_code == 2
        assert "the database to copy from" in refused.stderr

    def test_an_address_is_refused_by_its_option_and_never_shown(self):
        refused = copy("sqlite:///x.db", "mysql://someone:hidden@host/name")
        assert refused.exit_code == 2
        assert "--to is refused; it must begin with sqlite:/// or postgresql://" in refused.stderr
        assert "hidden" not in refused.output

    def test_a_target_that_cannot_be_reached(self, filled_database):
        source = filled_database("sqlite")
        failed = copy(source, "postgresql://someone:hidden@127.0.0.1:1/none")
        assert failed.exit_code == 1
        assert len(failed.stderr.splitlines()) == 1
        assert "hidden" not in failed.output

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("UPDATE counts SET count = 3000000000 WHERE link_key = 1 AND slot_start = 900", "3000000000"),
            ("UPDATE links SET name = 'a' || char(0) || 'b' WHERE link_key = 1", "table links"),
            ("UPDATE trained_models SET fingerprint = fingerprint || 'f'", "table trained_models"),
        ],
    )
    def test_what_postgresql_cannot_hold_is_said_and_nothing_stays(self, filled_database, new_database, change, said):
        source, target = filled_database("sqlite"), new_database("postgresql")
        with sqlite3.connect(source.removeprefix("sqlite:///")) as connection:
            connection.execute(change)
        connection.close()
        refused = copy(source, target)
        assert refused.exit_code == 2
        assert said in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
        assert not any(contents(target).values())


SPOILERS = {
    "sqlite": [
        "CREATE TRIGGER spoil AFTER INSERT ON counts WHEN new.slot_start = 1800 AND new.link_key = 7 BEGIN "
        "UPDATE counts SET count = 77 WHERE link_key = 7 AND slot_start = 1800; END"
    ],
    "postgresql": [
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF new.slot_start = 1800 AND new.link_key = 7 THEN new.count := 77; END IF; RETURN new; END $$",
        "CREATE TRIGGER spoil BEFORE INSERT ON counts FOR EACH ROW EXECUTE FUNCTION spoil()",
    ],
}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_row_that_arrives_changed_is_named_and_nothing_is_kept(filled_database, new_database, kind):
    source, target = filled_database("sqlite"), new_database(kind)
    engine = engine_of(target)
    upgrade_schema(engine)
    with engine.begin() as connection:
        for statement in SPOILERS[kind]:
            connection.exec_driver_sql(statement)
    engine.dispose()
    failed = copy(source, target)
    assert failed.exit_code == 1
    assert "table counts, link_key=7, slot_start=1800: count differs" in failed.stderr
    assert not any(contents(target).values())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_row_that_gets_lost_is_named(filled_database, new_database, kind):
    source, target = filled_database("sqlite"), new_database(kind)
    engine = engine_of(target)
    upgrade_schema(engine)
    lost = {
        "sqlite": [
            "CREATE TRIGGER lose BEFORE INSERT ON counts WHEN new.slot_start = 1800 BEGIN SELECT RAISE(IGNORE); END"
        ],
        "postgresql": [SPOILERS["postgresql"][0].replace("new.count := 77;", "RETURN NULL;"), SPOILERS[kind][-1]],
    }
    with engine.begin() as connection:
        for statement in lost[kind]:
            connection.exec_driver_sql(statement)
    engine.dispose()
    failed = copy(source, target)
    assert failed.exit_code == 1
    assert "table counts, link_key=7, slot_start=1800: missing in the target" in failed.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_copy_killed_in_the_middle_leaves_nothing_and_can_be_made_again(filled_database, new_database, kind):
    source, target = filled_database("sqlite"), new_database(kind)
    engine = engine_of(source)
    with writing(engine) as session:
        # SQLite writes nothing before the commit while all fits into 2 MB. This does not, and comes before counts.
        session.execute(text("UPDATE audit SET path = hex(zeroblob(2000000))"))
        session.execute(
            text(
                "WITH RECURSIVE n(i) AS (SELECT 100000 UNION ALL SELECT i + 1 FROM n WHERE i < 220000) "
                "INSERT INTO counts SELECT 1, 60 * i, 5, 0 FROM n"
            )
        )
    engine.dispose()
    command = [sys.executable, "-m", "app", "db", "copy", "--from", source, "--to", target]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not being_written(target, kind):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while kind == "postgresql" and being_written(target, kind):  # the server notices in its own time
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not any(contents(target).values())
    assert copy(source, target).exit_code == 0
    assert contents(target) == contents(source)


def being_written(url: str, kind: str) -> bool:
    """Tell whether rows are on their way into a database."""
    if kind == "sqlite":
        log = Path(url.removeprefix("sqlite:///") + "-wal")
        return log.exists() and log.stat().st_size > 1_000_000
    with psycopg.connect(url, autocommit=True) as connection:
        question = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY counts%'"
        )
        return bool(connection.execute(question).fetchone()[0])


def test_what_is_written_meanwhile_is_not_in_the_copy(filled_database, new_database):
    from app.maintenance.copy_database import copy_database, prepare, snapshot

    for kind in ("sqlite", "postgresql"):
        source, target = filled_database(kind), new_database("sqlite")
        before = contents(source)
        old, new = engine_of(source), engine_of(target)
        prepare(old, new)
        with snapshot(old) as connection:
            connection.execute(select(func.count()).select_from(Link)).scalar()
            with writing(old) as session:
                session.execute(text("DELETE FROM counts WHERE link_key = 7"))
                session.execute(text("UPDATE links SET name = 'changed'"))
            copy_database(connection, new, lambda table, n: None)
        assert contents(target) == before
        with reading(old) as session:
            assert session.scalar(select(func.count()).where(Count.link_key == 7)) == 0
        old.dispose()
        new.dispose()
