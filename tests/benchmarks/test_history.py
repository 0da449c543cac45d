"""The reads of ``benchmarks.history``, which do not depend on the length of history."""

import time

from sqlalchemy import text

from app.core.database import open_database, reading, writing
from app.core.partitions import existing_months
from app.counts.tables import Count
from app.forecasts.tables import Forecast
from app.links.queries import all_links
from app.settings import Settings
from benchmarks.history import reads
from benchmarks.query_plans import explain_query, recorded_queries
from tests.support.databases import on_postgresql
from tests.support.stored import FORECAST, add_link, put_rows

DAY = 86_400


@on_postgresql
def test_reads_look_into_few_of_many_months(database_url):
    engine = open_database(Settings(database_url=database_url).database_url)
    key = add_link(engine, "A").link_key
    last = int(time.time()) // 900 * 900 - 900
    slots = [last - i * DAY for i in range(3 * 365)]  # a slot a day, and the last half day in full
    slots += [last - 900 * i for i in range(1, 48)]
    with writing(engine) as session:
        put_rows(session, Count, [{"link_key": key, "slot_start": s, "count": 1, "quality": 0} for s in slots])
        put_rows(
            session,
            Forecast,
            [
                FORECAST | {"link_key": key, "slot_start": s + 900 * h, "horizon": h, "expected": 1.0}
                for s in slots
                for h in (1, 2, 3, 4)
            ],
        )
        links = all_links(session)
        assert len(existing_months(session.connection(), "counts")) >= 36
    looked: dict[tuple[str, str], int] = {}
    with reading(engine) as session:
        for name, read in reads(links, last, 12).items():
            with recorded_queries(engine) as asked:
                assert read(session, links[0]) is not None
            assert asked
            plans = [explain_query(session.connection(), *question) for question in asked]
            for table in ("counts", "forecasts"):
                months = {month for plan in plans for month in plan.months if month.startswith(table)}
                looked[name, table] = len(months)
            for _ in range(8):  # the driver prepares what it sees for the sixth time
                read(session, links[0])
        plans_for_any_slot = """
            SELECT sum(generic_plans), sum(custom_plans) > 0 FROM pg_prepared_statements
            WHERE statement ~ '\\m(counts|forecasts)\\M'
        """
        assert tuple(session.execute(text(plans_for_any_slot)).one()) == (0, True)
    # This month and the last, the first for the oldest slot, and the next for what is forecast at the end of this one.
    assert {name: n for name, n in looked.items() if n > 3} == {}
    assert sum(looked.values()) > len(looked) / 2
    engine.dispose()
