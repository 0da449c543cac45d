"""The queries of accuracy: the rows that they return, and those that they read."""

import re
from datetime import UTC, datetime

import pytest
from sqlalchemy import event, text

from app.accuracy.measure import link_accuracy, network_accuracy
from app.accuracy.schemas import By
from app.core.database import open_database, reading, writing
from app.counts.tables import Count
from app.forecasts.tables import Forecast
from app.links.queries import all_links
from app.settings import Settings
from tests.support.databases import on_postgresql, on_sqlite
from tests.support.memory import limit_memory
from tests.support.stored import FORECAST, MONDAY, SLOT, add_link, put_rows

pytestmark = pytest.mark.journey

DAYS = 8
LINKS = 3
MINUTE = 60


@pytest.fixture
def engine(database_url):
    opened = open_database(Settings(database_url=database_url).database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def statements(engine):
    """Record all statements that are executed, with their parameters."""
    found = []
    event.listen(engine, "before_cursor_execute", lambda _c, _cur, sql, given, *_: found.append((sql, given)))
    return found


def fill(engine, slots):
    for i in range(LINKS):
        add_link(engine, f"L{i}", zone="UTC")
    with writing(engine) as session:
        keys = [link.link_key for link in all_links(session)]
        rows = [{"link_key": key, "slot_start": slot} for key in keys for slot in slots]
        put_rows(session, Count, [row | {"count": 9, "quality": 0} for row in rows])
        put_rows(session, Forecast, [FORECAST | row | {"expected": 7.0} for row in rows])


def number_of_rows(connection, sql, given):
    result = connection.exec_driver_sql(sql, given)
    return len(result.all()) if result.returns_rows else 0


def reads():
    """Yield every kind of read of accuracy, with the most rows that it may return."""
    yield LINKS, lambda session: network_accuracy(session, 1, window=f"{DAYS}d")
    for by, most in {None: 1, By.HOUR: 24 * DAYS, By.DAY: DAYS, By.HORIZON: 1, By.MODEL_VERSION: 1}.items():
        yield most, lambda session, by=by: link_accuracy(session, "L1", 1, window=f"{DAYS}d", by=by)


def test_no_row_of_a_slot_leaves_the_database(engine, statements):
    fill(engine, range(MONDAY, MONDAY + DAYS * 96 * SLOT, SLOT))
    for most, read in reads():
        statements.clear()
        with reading(engine) as session:
            assert read(session).n_used % (DAYS * 96) == 0
        with engine.connect() as connection:
            # With the settings that were made for them, such as PostgreSQL's SET LOCAL.
            queries = [one for one in statements if not one[0].startswith("BEGIN")]
            sizes = [(sql, number_of_rows(connection, sql, given)) for sql, given in queries]
        sizes = [size for sql, size in sizes if re.search(r"\bforecasts\b", sql)]
        assert sizes
        assert max(sizes) <= most


@on_sqlite
def test_sqlite_goes_to_each_row_by_its_key(engine, statements):
    fill(engine, range(MONDAY, MONDAY + 96 * SLOT, SLOT))
    for _, read in reads():
        statements.clear()
        with reading(engine) as session:
            read(session)
        queries = [one for one in statements if re.search(r"\bforecasts\b", one[0])]
        with engine.connect() as connection:
            steps = [
                row[3]
                for sql, given in queries
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", given)
            ]
        assert not [step for step in steps if re.match(r"SCAN \w*(counts|forecasts)", step)]
        of_forecasts = [step for step in steps if re.match(r"SEARCH \w*forecasts", step)]
        assert of_forecasts
        assert all("(link_key=? AND slot_start=?" in step for step in of_forecasts)


@on_postgresql
def test_postgresql_plans_for_the_months_of_span_and_week_before(engine, statements):
    fill(engine, [int(datetime(2025, month, 15, tzinfo=UTC).timestamp()) for month in range(1, 13)])
    for _, read in reads():
        statements.clear()
        with reading(engine) as session:
            read(session)
        queries = [one for one in statements if re.search(r"\bforecasts\b", one[0])]
        with engine.connect() as connection:
            plans = [line for sql, given in queries for (line,) in connection.exec_driver_sql(f"EXPLAIN {sql}", given)]
        months = set(re.findall(r"on (?:counts|forecasts)_(\d{4}_\d\d)", "\n".join(plans)))
        assert months
        assert months <= {"2025_11", "2025_12"}


@pytest.mark.parametrize("by", [None, By.HOUR])
def test_memory_grows_with_the_rows_that_are_found_and_not_with_the_span(engine, by):
    link = add_link(engine, "A", zone="Europe/Berlin", slot_minutes=1)
    begin, newest = (int(datetime(year, 11, 17, tzinfo=UTC).timestamp()) for year in (2006, 2026))
    with writing(engine) as session:
        rows = [{"link_key": link.link_key, "slot_start": slot} for slot in (begin, newest)]
        put_rows(session, Count, [row | {"count": 9, "quality": 0} for row in rows])
        put_rows(session, Forecast, [FORECAST | row | {"expected": 7.0} for row in rows])
    with reading(engine) as session, limit_memory():
        answer = link_accuracy(session, "A", 1, by=by, begin=datetime.fromtimestamp(begin, UTC))
    assert (answer.n_used, answer.rmse, answer.n_missing) == (2, 2.0, (newest - begin) // MINUTE - 1)


@on_sqlite
def test_sqlite_without_mathematical_functions_is_given_a_square_root(engine):
    # Before the service prepares the connection: as SQLite before 3.35 is, or one built without them.
    event.listen(engine, "connect", lambda plain, _: plain.create_function("sqrt", 1, None), insert=True)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT sqrt(2.25), sqrt(NULL)")).one()
    assert tuple(found) == (1.5, None)
