"""A scheduler that is away, as far as it shows without one."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from app.core.database import open_database, reading, writing
from app.training.cluster import Cluster
from app.training.heartbeat import Heartbeat
from app.training.on_cluster import connect_to_cluster
from app.training.queries import run_with
from app.training.tables import RetrainRun
from app.training.work import Work
from tests.support.databases import on_sqlite
from tests.support.services import free_port

NOWHERE = "tcp://dask-scheduler.invalid:8786"  # a name that never has an address

pytestmark = on_sqlite


@pytest.fixture
def work(settings: Any) -> Iterator[Work]:
    engine, now = open_database(settings.database_url), datetime.now(UTC)
    given = {"algorithm": "KR", "parameters": {}, "activate": "never", "requested_by": "a test", "requested_at": now}
    run = RetrainRun(state="running", worker="me", heartbeat_at=now, cancel_requested=False, **given)
    with writing(engine) as session:
        session.add(run)
    yield Work(engine, settings, run, "me")
    engine.dispose()


def detail_of(work: Work, address: str, *, known: bool) -> str | None:
    """Try to reach a cluster; give what is then said of the run."""
    cluster = Cluster(address)
    cluster.known = known
    with_it = Work(work.engine, work.settings, work.run, work.worker, cluster)
    assert connect_to_cluster(with_it, Heartbeat(work.engine, work.run.id, "me", threading.Event())) is None
    with reading(work.engine) as session:
        run = run_with(session, work.run.id)
    assert run is not None
    return run.detail


def test_a_host_that_never_was_is_no_cluster_and_one_that_is_missing_is_said(work):
    assert detail_of(work, NOWHERE, known=False) is None
    said = detail_of(work, NOWHERE, known=True)
    assert said.startswith(f"trained in local processes, for want of the Dask scheduler {NOWHERE}: ")
    assert "dask-scheduler.invalid has no address" in said


@pytest.mark.journey
def test_a_host_where_nobody_listens_is_said_the_first_time(work):
    address = f"tcp://127.0.0.1:{free_port()}"
    said = detail_of(work, address, known=False)
    assert said == f"trained in local processes, for want of the Dask scheduler {address}: Connection refused"
