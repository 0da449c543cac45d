import subprocess
import sys
import threading
import time

from starlette.testclient import TestClient

from app import main
from tests.app.conftest import on_one_database


def test_a_process_that_serves_carries_no_library_that_only_others_need():
    heavy = ("sklearn", "scipy", "joblib", "pandas", "matplotlib", "plotly", "lightgbm", "alembic")
    code = f"import sys, app.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@on_one_database
def test_a_service_that_ends_waits_for_its_upkeep_before_it_closes_the_database(settings, monkeypatch):
    monkeypatch.setattr(main, "UPKEEP_SECONDS", 0.01)
    begun, ended = threading.Event(), []
    service = main.create_app(settings)
    with TestClient(service):
        runtime = service.state.runtime

        def take_note() -> None:
            begun.set()
            time.sleep(0.5)  # long enough for the service to have closed the database meanwhile, if it did not wait
            ended.append(runtime.engine.pool is before)

        before = runtime.engine.pool
        monkeypatch.setattr(runtime.board, "take_note", take_note)
        assert begun.wait(60)
    assert ended == [True]
    assert runtime.engine.pool is not before  # now it is closed: an engine makes itself a new pool then
