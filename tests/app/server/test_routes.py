"""For those who run the service."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from app.core import metrics
from app.core.database import writing
from app.counts.tables import Count
from app.links.tables import Link
from app.main import create_app
from app.server.routes import DOCS_FILES
from tests.support.databases import on_sqlite
from tests.support.stored import put_rows


def sample(client, name, **labels):
    # Only the lines that matter: of a whole page, parsing takes longer than making it.
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    families = text_string_to_metric_families("\n".join([*lines, ""]))
    values = [s.value for f in families for s in f.samples if s.name == name and labels.items() <= s.labels.items()]
    return sum(values) if values else None


@pytest.fixture
def state(client):
    return client.app.state


@pytest.fixture
def without_check_cache(client, monkeypatch):
    """Return a function that requests readiness, without cached results."""
    monkeypatch.setattr("app.server.readiness.FRESH_SECONDS", 0.0)
    monkeypatch.setattr("app.server.database_metrics.FRESH_SECONDS", 0.0)
    return lambda: client.get("/readyz")


class TestLivez:
    @on_sqlite
    def test_needs_no_key(self, service):
        with TestClient(service) as keyless:
            assert keyless.get("/livez").json() == {"status": "alive"}


class TestReadyz:
    def test_ready(self, client):
        response = client.get("/readyz")
        assert response.status_code == 200
        body = response.json()
        assert body["status"] == "ready"
        assert body["database"] == {"ok": True, "reason": None}
        assert body["schema"]["ok"]
        assert body["schema"]["step"] == body["schema"]["newest_step"]
        shelf = {"versions": 0, "size_bytes": 0}
        assert body["models"] == {"ok": True, "loaded": 0, "n_damaged": 0, "damaged": [], "shelf": shelf}
        assert body["feed"] == {"newest_slot": None, "age_seconds": None}

    def test_shows_how_fresh_the_feed_is(self, client, state, without_check_cache, monkeypatch):
        with writing(state.engine) as session:
            now = datetime(2026, 1, 1, tzinfo=UTC)
            link = Link(link_id="A", name="A", zone="UTC", slot_minutes=15, created_at=now, updated_at=now)
            session.add(link)
            session.flush()
            slot = int(now.timestamp())
            put_rows(session, Count, [{"link_key": link.link_key, "slot_start": slot, "count": 4, "quality": 0}])
        monkeypatch.setattr(state.clock, "now", lambda: now + timedelta(hours=1))
        feed = without_check_cache().json()["feed"]
        assert feed["newest_slot"] == "2026-01-01T00:00:00Z"
        assert feed["age_seconds"] == 2700
        assert sample(client, "flowcast_feed_age_seconds") == 2700

    def test_an_old_schema_is_not_ready(self, state, without_check_cache):
        with writing(state.engine) as session:
            session.execute(text("UPDATE alembic_version SET version_num = '0000'"))
        response = without_check_cache()
        assert response.status_code == 503
        assert response.json()["status"] == "unavailable"
        assert response.json()["schema"]["step"] == "0000"

    def test_an_unreachable_database_is_not_ready(self, client, without_check_cache, monkeypatch):
        def disconnect(engine):
            raise OperationalError("SELECT", {}, Exception("secret.host refused"))

        monkeypatch.setattr("app.server.readiness.schema_step", disconnect)
        response = without_check_cache()
        assert response.status_code == 503
        assert response.headers["Retry-After"]
        assert response.json()["database"] == {"ok": False, "reason": "it failed with OperationalError"}
        assert "secret" not in response.text
        assert sample(client, "flowcast_ready") == 0
        assert client.get("/livez").status_code == 200

    def test_a_damaged_artifact_is_listed_and_does_not_stop_it(self, state, put_link, without_check_cache, monkeypatch):
        put_link("A", zone="UTC")
        monkeypatch.setattr(state.loaded_models, "damaged", lambda: {(1, 3): "it is cut short"})
        response = without_check_cache()
        assert response.status_code == 200
        assert response.json()["status"] == "degraded"
        assert response.json()["models"]["damaged"] == [{"link_id": "A", "version": 3, "reason": "it is cut short"}]

    def test_probes_cannot_hammer_the_database(self, client, monkeypatch):
        asked = []
        monkeypatch.setattr("app.server.readiness.schema_step", lambda engine: asked.append(1))
        monkeypatch.setattr("app.server.readiness.monotonic", lambda: 1e9)  # all within a moment
        for _ in range(20):
            client.get("/readyz")
        assert len(asked) == 1


@on_sqlite
class TestReadyzForecasts:
    @pytest.fixture(autouse=True)
    def no_upkeep(self, monkeypatch):
        """Disable the background refresh, so that only tests put forecasts into memory."""
        monkeypatch.setattr("app.server.resources.UPKEEP_SECONDS", 3600.0)

    @pytest.fixture
    def disconnect(self, monkeypatch, without_check_cache):
        """Return a function that makes the database unreachable."""

        def fail(engine):
            raise OperationalError("SELECT", {}, Exception("refused"))

        return lambda: monkeypatch.setattr("app.server.readiness.schema_step", fail)

    def test_ready_with_the_database(self, client):
        response = client.get("/readyz/forecasts")
        assert response.status_code == 200
        assert response.json() == {"status": "ready", "database": {"ok": True, "reason": None}}

    def test_stale_without_it_once_all_forecasts_are_in_memory(self, client, state, put_link, disconnect):
        put_link("A")
        disconnect()
        response = client.get("/readyz/forecasts")
        assert (response.status_code, response.json()["status"]) == (503, "unavailable")
        assert response.headers["Retry-After"].isdigit()
        state.forecast_cache.refresh()
        response = client.get("/readyz/forecasts")
        assert (response.status_code, response.json()["status"], response.json()["database"]["ok"]) == (
            200,
            "stale",
            False,
        )
        assert client.get("/readyz").status_code == 503

    def test_unavailable_with_an_old_schema(self, client, state, without_check_cache):
        state.forecast_cache.refresh()
        with writing(state.engine) as session:
            session.execute(text("UPDATE alembic_version SET version_num = '0000'"))
        assert client.get("/readyz/forecasts").status_code == 503


@on_sqlite
class TestMetrics:
    def test_requests_are_counted_by_template(self, client):
        before = sample(client, "flowcast_requests_total", route="/v1/links/{link_id}", status="4xx") or 0
        for link_id in ("A", "B", "C"):
            client.get(f"/v1/links/{link_id}")
        assert sample(client, "flowcast_requests_total", route="/v1/links/{link_id}", status="4xx") == before + 3
        assert sample(client, "flowcast_request_duration_seconds_count", route="/v1/links/{link_id}") >= 3
        assert "/v1/links/A" not in client.get("/metrics").text

    def test_an_answer_is_counted_at_once(self, client):
        labels = {"method": "GET", "route": "/v1/links/{link_id}", "status": "4xx"}
        counted = partial(metrics.REGISTRY.get_sample_value, "flowcast_requests_total", labels)
        before = counted() or 0
        client.get("/v1/links/A")
        assert counted() == before + 1

    def test_strange_methods_and_paths_make_no_new_series(self, client):
        for name in ("A", "B"):
            client.request(f"STRANGE{name}", "/livez")
            client.get(f"/strange/{name}")
        page = client.get("/metrics").text
        assert "STRANGE" not in page
        assert "/strange" not in page
        assert sample(client, "flowcast_requests_total", method="other") >= 2

    def test_what_others_count(self, client):
        stored, issued = "flowcast_counts_stored_total", "flowcast_forecasts_issued_total"
        before = sample(client, stored) or 0, sample(client, issued, method="profile") or 0
        metrics.COUNTS_STORED.inc(96)
        metrics.FORECASTS_ISSUED.labels("profile").inc(4)
        assert (sample(client, stored), sample(client, issued, method="profile")) == (before[0] + 96, before[1] + 4)


@on_sqlite
class TestDocs:
    def test_nothing_comes_from_elsewhere_and_no_script_is_inline(self, client):
        page = client.get("/docs")
        assert "//" not in page.text
        assert re.findall(r"<script[^>]*>([^<]*)</script>", page.text) == ["", ""]
        policy = page.headers["Content-Security-Policy"]
        assert "script-src 'self';" in policy
        for address in re.findall(r'(?:src|href)="docs/([^"]+)"', page.text):
            assert client.get(f"/docs/{address}").status_code == 200
            assert address in DOCS_FILES
        assert client.get("/docs/redoc.standalone.js").status_code == 404

    def test_works_below_a_prefix(self, settings):
        below = settings.model_copy(update={"root_path": "/flowcast"})
        with TestClient(create_app(below)) as client:
            for prefix in ("", "/flowcast"):
                assert client.get(f"{prefix}/docs").status_code == 200
                assert client.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/flowcast"}]
                answer = client.get(f"{prefix}/v1/links")
                assert answer.status_code == 401
                assert answer.headers["Cache-Control"] == "no-store"
