"""Metrics that are read from the database."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from app.core.database import writing
from app.core.schema import NEWEST_STEP
from app.events.queries import MOST_FAILURES
from app.events.tables import Webhook
from app.links.queries import link_or_404
from app.registry.tables import ModelVersion
from app.training.tables import RetrainRun
from app.worker.worker import Worker
from tests.support.databases import on_postgresql, on_sqlite
from tests.support.statements import observed_statements
from tests.support.stored import MONDAY, SLOT, put_counts, utc
from tests.support.waiting import wait_until

THEN = datetime(2025, 8, 1, tzinfo=UTC)


@pytest.fixture
def figures(client, monkeypatch):
    """Return sample values by name, or by name and label, without cached ones."""
    for place in (
        "app.server.readiness.FRESH_SECONDS",
        "app.server.database_metrics.FRESH_SECONDS",
        "app.server.database_metrics.SLOW_SECONDS",
    ):
        monkeypatch.setattr(place, 0.0)

    def ask():
        # Without the series of requests: tests before have made hundreds, and none is looked at here.
        lines = [line for line in client.get("/metrics").text.splitlines() if "flowcast_request_" not in line]
        families = text_string_to_metric_families("\n".join([*lines, ""]))
        samples = [sample for family in families for sample in family.samples]
        return {(one.name, *one.labels.values())[: len(one.labels) + 1]: one.value for one in samples}

    return ask


@pytest.fixture
def engine(client):
    return client.app.state.engine


def register_nothing(engine, link_id, state, version=1):
    """Register a version without an artifact."""
    with writing(engine) as session:
        link = link_or_404(session, link_id)
        facts = {"algorithm": "KR_SML", "folder": f"{link_id}/{version}", "fingerprint": "0" * 64, "rank": 1}
        spans = {"trained_from": THEN, "trained_to": THEN, "created_at": THEN}
        session.add(ModelVersion(link_key=link.link_key, version=version, state=state, about={}, **facts, **spans))


@pytest.mark.journey
def test_feed_and_models(client, put_link, figures, engine):
    for link_id in ("fresh", "old", "never"):
        put_link(link_id, zone="UTC")
    put_counts(client, "old", {MONDAY: 3})
    put_counts(client, "fresh", {MONDAY + 8 * SLOT: 4})
    values = figures()
    assert values["flowcast_feed_age_seconds",] == 0
    assert {feed: values["flowcast_links", feed] for feed in ("fresh", "stale", "silent")} == {
        "fresh": 1,
        "stale": 1,
        "silent": 1,
    }
    assert values["flowcast_links_without_model",] == 2
    register_nothing(engine, "fresh", "active")
    register_nothing(engine, "old", "retired")
    before = values["flowcast_forecasts_degraded_total", "damaged_model"]
    count = {"link_id": "fresh", "slot_start": utc(MONDAY + 9 * SLOT), "count": 4}
    assert client.post("/v1/counts", json={"counts": [count]}).json()["forecasts_issued"] == 1
    values = figures()
    assert values["flowcast_links_without_model",] == 1
    states = ("candidate", "active", "retired", "damaged")
    assert [values["flowcast_models", state] for state in states] == [0, 1, 1, 1]
    assert values["flowcast_forecasts_degraded_total", "damaged_model"] == before + 1
    with writing(engine) as session:  # retired versions do not count as damaged
        session.execute(update(ModelVersion).values(state="retired"))
    assert figures()["flowcast_models", "damaged"] == 0


@pytest.mark.journey
def test_retraining(client, put_link, figures, engine, settings):
    put_link("A", zone="UTC")
    values = figures()
    assert values["flowcast_retrain_runs", "failed"] == values["flowcast_retrain_oldest_queued_seconds",] == 0
    assert ("flowcast_retrain_last_finished_timestamp_seconds", "failed") not in values
    run = client.post("/v1/admin/retrain", json={"links": ["A"]}).json()
    with writing(engine) as session:
        session.execute(update(RetrainRun).values(requested_at=datetime.now(UTC) - timedelta(hours=2)))
    values = figures()
    assert values["flowcast_retrain_runs", "queued"] == 1
    assert values["flowcast_retrain_oldest_queued_seconds",] >= 7200
    worker = Worker(engine, settings.model_copy(update={"retrain_jobs": 1}))
    assert worker.work_once()
    worker.close()
    values = figures()
    assert (values["flowcast_retrain_runs", "queued"], values["flowcast_retrain_runs", "failed"]) == (0, 1)
    assert values["flowcast_retrain_links", "failed"] == 1
    assert values["flowcast_retrain_oldest_queued_seconds",] == 0
    ended = datetime.fromisoformat(client.get(f"/v1/admin/retrain/{run['run_id']}").json()["finished_at"])
    assert values["flowcast_retrain_last_finished_timestamp_seconds", "failed"] == pytest.approx(ended.timestamp())
    past = datetime.now(UTC) - timedelta(days=8)
    with writing(engine) as session:  # links count for a week, runs as long as they are on record
        session.execute(update(RetrainRun).values(finished_at=past, state="running", heartbeat_at=past))
    values = figures()
    assert (values["flowcast_retrain_runs", "running"], values["flowcast_retrain_links", "failed"]) == (1, 0)
    assert values["flowcast_retrain_oldest_heartbeat_seconds",] >= 8 * 86_400


@on_sqlite
def test_webhooks_refusals_and_what_runs(client, figures, engine):
    with writing(engine) as session:
        for failures in (0, 1, MOST_FAILURES - 1, MOST_FAILURES):
            facts = {"url": "https://example.org", "events": "forecasts", "secret": "s", "created_by": "test"}
            session.add(Webhook(**facts, created_at=THEN, failures=failures))
    before = figures()
    assert [before["flowcast_webhooks", state] for state in ("ok", "failing", "given_up")] == [1, 2, 1]
    assert client.get("/v1/links", headers={"X-API-Key": "nobody's"}).status_code == 401
    values = figures()
    assert values["flowcast_requests_refused_total", "401"] == before["flowcast_requests_refused_total", "401"] + 1
    assert values["flowcast_requests_refused_total", "413"] == before["flowcast_requests_refused_total", "413"]
    [build] = [labels for name, *labels in values if name == "flowcast_build_info"]
    assert set(build) == {client.app.version, "unknown", NEWEST_STEP}


@on_sqlite
def test_many_who_ask_cost_one_look(client):
    looks = []

    def note(_connection, statement, _parameters):
        if "FROM retrain_runs" in statement and "GROUP BY" in statement:
            looks.append(statement)

    with observed_statements(note):
        assert {client.get("/metrics").status_code for _ in range(8)} == {200}
    assert len(looks) == 2  # runs by state, and the links of recent ones


@on_postgresql
def test_without_the_database_the_other_metrics_are_shown(client, figures, engine, postgresql):
    name = engine.url.database
    before = figures()
    assert before["flowcast_database_up",] == before["flowcast_ready",] == 1
    with psycopg.connect(postgresql("postgres"), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        values = wait_until(lambda: (now := figures())["flowcast_database_up",] == 0 and now)
        assert values["flowcast_ready",] == 0
        assert ("flowcast_models", "active") not in values
        assert ("flowcast_counts_stored_total",) in values
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    wait_until(lambda: figures()["flowcast_database_up",] == 1)  # once the connections that were cut are replaced
