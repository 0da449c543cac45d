import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import pytest
from starlette.testclient import TestClient

from app import main
from app.server import resources
from app.server.resources import Resources
from tests.support.databases import on_sqlite
from tests.support.waiting import WAIT_SECONDS


@pytest.mark.journey
def test_a_process_that_serves_carries_no_library_that_only_others_need():
    heavy = (
        "sklearn",
        "scipy",
        "joblib",
        "pandas",
        "matplotlib",
        "plotly",
        "lightgbm",
        "alembic",
        "dask",
        "distributed",
    )
    code = f"import sys, app.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@on_sqlite
def test_a_service_that_ends_waits_for_its_upkeep(settings, monkeypatch):
    monkeypatch.setattr(resources, "UPKEEP_SECONDS", 0.01)
    begun, ending, closed, order = threading.Event(), threading.Event(), threading.Event(), []
    service = main.create_app(settings)
    whole = service.router.lifespan_context

    @asynccontextmanager
    async def noted(app):
        async with whole(app) as state:
            yield state
            ending.set()

    service.router.lifespan_context = noted
    with TestClient(service):
        runtime = service.state
        close = Resources.close

        def refresh() -> None:
            begun.set()
            assert ending.wait(WAIT_SECONDS)
            closed.wait(0.5)  # which must not happen; a service that does not wait closes within this time
            order.append("upkeep ended")

        def close_noted(self: Resources) -> None:
            order.append("closed")
            closed.set()
            close(self)

        monkeypatch.setattr(runtime.forecast_cache, "refresh", refresh)
        monkeypatch.setattr(Resources, "close", close_noted)
        assert begun.wait(WAIT_SECONDS)
    assert order == ["upkeep ended", "closed"]
