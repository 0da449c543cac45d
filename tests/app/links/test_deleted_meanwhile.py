"""A link that is deleted while a request reads is in the answer or absent from it, and never an error."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, delete, select
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from app.core.database import open_database, writing
from app.demo.city import City
from app.forecasts.tables import Forecast
from app.links.store_links import delete_link
from app.links.tables import Link
from tests.support.city import SLOTS, TRAINED_DAYS, post, slot_start
from tests.support.statements import observed_statements
from tests.support.waiting import wait_until

pytestmark = pytest.mark.journey

SPARE = "spare"
ISSUING = ["/v1/forecasts", f"/v1/links/{SPARE}/forecast"]  # which compute a forecast that is not there
PATHS = [(path, forecast) for forecast in (True, False) for path in [*ISSUING, "/v1/accuracy", "/v1/health", "/readyz"]]


class Interruption:
    """Acts once, before a statement with a number or the first one after it that allows it, in whatever thread."""

    def __init__(self) -> None:
        self._left, self._act, self._lock = 0, bool, threading.Lock()
        self.happened = True

    def arm(self, number: int, act: Callable[[], bool]) -> None:
        """Call a function before the n-th statement, counted from 0."""
        with self._lock:
            self._left, self._act, self.happened = number, act, False

    def before_statement(self, connection: Connection, *_: Any) -> None:
        waits = connection.dialect.name == "sqlite" and connection.get_execution_options().get("writes")
        if self.happened or waits or not self._lock.acquire(blocking=False):
            return
        try:
            self._left -= 1
            self.happened = self._left < 0 and self._act()
        finally:
            self._lock.release()


@pytest.fixture
def interruption(client: TestClient) -> Iterator[Interruption]:
    # The statements of a process that has just started would be counted, too.
    wait_until(lambda: all(thread.name != "ahead" for thread in threading.enumerate()))
    made = Interruption()
    with observed_statements(made.before_statement):
        yield made


@pytest.fixture
def elsewhere(client: TestClient) -> Iterator[Engine]:
    """Open the same database as another process does."""
    engine = open_database(client.app.state.settings.database_url)  # type: ignore[attr-defined]
    yield engine
    engine.dispose()


def put_spare(client: TestClient, city: City, *, forecast: bool) -> None:
    """Store a link with counts, whose forecast was issued or has to be."""
    newest = TRAINED_DAYS * SLOTS
    assert client.put(f"/v1/links/{SPARE}", json={"zone": "Europe/Berlin"}).status_code == 201
    last = range(newest - 60, newest)
    post(client, [{"link_id": SPARE, "slot_start": slot_start(city, i), "count": i % 7} for i in last])
    if not forecast:
        with writing(client.app.state.engine) as session:  # type: ignore[attr-defined]
            key = session.execute(select(Link.link_key).where(Link.link_id == SPARE)).scalar_one()
            session.execute(delete(Forecast).where(Forecast.link_key == key))


def delete_spare(elsewhere: Engine) -> bool:
    """Delete the link, unless a transaction under way keeps it from being deleted."""
    with suppress(OperationalError), writing(elsewhere) as session:
        session.execute(select(Link).where(Link.link_id == SPARE).with_for_update(nowait=True)).all()
        delete_link(session, SPARE, force=True)
        return True
    return False


@pytest.mark.parametrize(("path", "forecast"), PATHS)
def test_before_any_statement(
    interruption: Interruption, client: TestClient, city: City, elsewhere: Engine, path: str, forecast: bool
) -> None:
    number = 0
    while interruption.happened:
        put_spare(client, city, forecast=forecast)
        interruption.arm(number, lambda: delete_spare(elsewhere))
        answer = client.get(path)
        allowed = {200, 404} if SPARE in path else {200}
        assert answer.status_code in allowed, f"deleted before statement {number}: {answer.text}"
        number += 1
    assert number > 1
