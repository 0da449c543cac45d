"""Forecasts one can trust: a silent feed, a profile that is better than any model, a model that is withdrawn."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from tests.support.databases import on_postgresql, on_sqlite
from tests.support.services import Service, environment, run_flowcast, running_service
from tests.support.waiting import wait_until

SLOT = timedelta(minutes=15)
QUICK = {"lags": 12, "n_neighbors": 8, "max_iter": 2, "held_out_days": 4, "mu": [1e-3]}

pytestmark = pytest.mark.journey


def slot_of(moment: datetime) -> datetime:
    """Return the start of the slot that contains a moment."""
    return moment - (moment - datetime(1970, 1, 1, tzinfo=UTC)) % SLOT


def post_days(service: Service, link_id: str, last: datetime, days: int) -> None:
    """Create a link and post counts up to a slot that nothing but the time of day explains."""
    assert service.request("PUT", f"/v1/links/{link_id}", {"zone": "UTC"})[0] == 201
    rng = np.random.default_rng(7)
    starts = [last - i * SLOT for i in reversed(range(96 * days))]
    usual = [100 + 60 * np.sin((at.hour * 4 + at.minute // 15) / 96 * 2 * np.pi) for at in starts]
    rows = [
        {"link_id": link_id, "slot_start": at.isoformat(), "count": int(rng.poisson(mean))}
        for at, mean in zip(starts, usual, strict=True)
    ]
    status, answer = service.request("POST", "/v1/counts", {"counts": rows})
    assert status == 200, answer


@on_postgresql
def test_a_feed_that_fell_silent_weeks_ago_is_forecast_from_now_on(database_url, tmp_path):
    with running_service(database_url, tmp_path, FLOWCAST_CLOCK="wall") as service:
        newest = slot_of(datetime.now(UTC)) - timedelta(days=28)
        post_days(service, "A", newest, 14)
        before = slot_of(datetime.now(UTC))
        answers = [
            service.request("GET", "/v1/links/A/forecast?horizon=4")[1]["forecasts"],
            service.request("GET", "/v1/forecasts?horizon=4")[1]["links"][0]["forecasts"],
            service.request("GET", "/v1/links/A/forecast?horizon=4&explain=true")[1]["forecasts"],
        ]
        after = slot_of(datetime.now(UTC))
        for result in answers:
            first = datetime.fromisoformat(result[0]["slot_start"])
            assert before <= first <= after
            assert [datetime.fromisoformat(one["slot_start"]) for one in result] == [first + h * SLOT for h in range(4)]
            assert {one["method"] for one in result} == {"profile"}
            assert {one["degraded_reason"] for one in result} == {"no count has come for more than 90 minutes"}
            assert {datetime.fromisoformat(one["as_of_slot"]) for one in result} == {newest}
        stored = service.request("GET", "/v1/links/A/forecasts")[1]["forecasts"]
        assert max(datetime.fromisoformat(one["slot_start"]) for one in stored) == newest + 4 * SLOT


@on_sqlite
def test_a_profile_that_wins_is_chosen_and_a_bad_model_is_withdrawn(database_url, tmp_path):
    # In the worker itself: processes that train take longer to start than that.
    with running_service(database_url, tmp_path, worker=True, FLOWCAST_RETRAIN_JOBS="1") as service:
        post_days(service, "A", datetime(2026, 3, 1, tzinfo=UTC), 16)

        def forecast() -> dict:
            return service.request("GET", "/v1/links/A/forecast")[1]["forecasts"][0]

        assert forecast()["degraded_reason"] == "the link has no trained model"
        run = service.request("POST", "/v1/admin/retrain", {"links": "all", "parameters": QUICK})[1]
        assert run["algorithm"] == "best"
        path = f"/v1/admin/retrain/{run['run_id']}"
        (link,) = service.run_when(path, lambda run: run["state"] in ("succeeded", "failed"))["links"]
        assert link["outcome"] == "profile", link
        wait_until(lambda: forecast()["degraded_reason"] is None)
        assert forecast()["method"] == "profile"
        assert service.request("GET", "/v1/forecasts")[1]["links"][0]["status"] == "ok"

        assert service.request("POST", f"/v1/admin/links/A/models/{link['version']}/activate", {})[0] == 200
        wait_until(lambda: forecast()["method"] == "ENSEMBLE")
        done = run_flowcast("models", "deactivate", "A", "--reason", "worse", **environment(database_url, tmp_path))
        assert done.returncode == 0, done.stderr
        wait_until(lambda: forecast()["degraded_reason"] == "the link's trained model was withdrawn")
        history = service.request("GET", "/v1/admin/links/A/activations")[1]["activations"]
        assert [(one["version"], one["reason"]) for one in history] == [(None, "worse"), (link["version"], None)]

    with running_service(database_url, tmp_path) as service:  # what was decided survives a restart
        one = service.request("GET", "/v1/links/A/forecast")[1]["forecasts"][0]
        assert one["degraded_reason"] == "the link's trained model was withdrawn"
