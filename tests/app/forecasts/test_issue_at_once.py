"""Processes that issue the same forecasts at the same moment."""

import threading
from datetime import UTC, datetime

from app.core.database import open_database, reading, writing
from app.forecasts.issued_forecast import HORIZONS, IssuedForecast
from app.forecasts.queries import save_forecasts, stored_forecasts
from app.links.queries import all_links
from app.links.tables import Link
from tests.support.databases import on_postgresql
from tests.support.waiting import WAIT_SECONDS

LINKS, ROUNDS = 150, 25


@on_postgresql
def test_batches_that_name_links_in_other_orders_do_not_deadlock(database_url):
    engine = open_database(database_url.replace("postgresql://", "postgresql+psycopg://"))
    now = datetime.now(UTC)
    with writing(engine) as session:
        for i in range(LINKS):
            given = {"name": "", "zone": "UTC", "slot_minutes": 15, "created_at": now, "updated_at": now}
            session.add(Link(link_id=f"L{i}", **given))
    with reading(engine) as session:
        links = all_links(session)
    together, problems = threading.Barrier(2), []

    def issue(issued_at: int) -> None:
        numbers: list[float] = [1.0] * HORIZONS
        for turn in range(ROUNDS):
            forecasts = [
                IssuedForecast(link, turn * 900, 1, "KR", None, 0, 0.9, numbers, numbers, numbers, numbers, issued_at)
                for link in links[:: 1 if issued_at else -1]
            ]
            together.wait(timeout=WAIT_SECONDS)
            try:
                with writing(engine, derived=True) as session:
                    save_forecasts(session, forecasts)
            except Exception as problem:
                problems.append(problem)

    both = [threading.Thread(target=issue, args=[i]) for i in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert problems == []
    with reading(engine) as session:
        for turn in range(ROUNDS):
            stored = stored_forecasts(session, links, {link.link_key: turn * 900 for link in links})
            assert len(stored) == LINKS
    engine.dispose()
