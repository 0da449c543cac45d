"""A forecast that lies ready is sent before the app has its turn, to those who may have it."""

from datetime import UTC, datetime, timedelta

import pytest
from httpx2 import Response

from app.database import writing
from app.forecasts.ready import ReadyForecasts
from app.keys.caller import Scope
from app.keys.issue import issue_key
from tests.support.databases import on_sqlite
from tests.support.waiting import wait_until

STRANGERS = {"X-API-Key": "fc_nobody_knows-this-one"}


@pytest.fixture
def path(client, city) -> str:
    """A question whose answer lies ready."""
    link_id = next(iter(city.counts))
    path = f"/v1/links/{link_id}/forecast"

    def is_ready() -> bool:
        assert client.get(path).status_code == 200
        return client.app.state.runtime.board.ready(link_id) is not None

    wait_until(is_ready)  # PostgreSQL's notifications are followed from a thread, which connects first
    return path


@pytest.fixture
def quick(monkeypatch) -> list[bool]:
    """Whether each request was answered at the edge."""
    seen, real = [], ReadyForecasts.__call__

    async def noted(self, exchange):
        answer = await real(self, exchange)
        seen.append(answer is not None)
        return answer

    monkeypatch.setattr(ReadyForecasts, "__call__", noted)
    return seen


@pytest.mark.parametrize("query", ["", "?horizon=1", "?horizon=4"])
def test_the_answer_is_that_of_the_app(client, path, quick, query):
    def sent_at_the_edge() -> Response | None:
        answer = client.get(path + query)
        return answer if quick.pop() else None

    sent = wait_until(sent_at_the_edge)
    usual = client.get(f"{path}{query}{'&' if query else '?'}explain=false")
    assert quick == [False]
    assert sent.json() == usual.json()
    once = {"x-request-id"}
    assert {k: v for k, v in sent.headers.items() if k not in once} == {
        k: v for k, v in usual.headers.items() if k not in once
    }


@on_sqlite
def test_nobody_gets_it_who_may_not(client, path, quick):
    ingest = client.post("/v1/admin/keys", json={"name": "feed", "scopes": ["ingest"]}).json()["key"]
    for headers, status in ((STRANGERS, 401), ({"X-API-Key": ingest}, 403)):
        refused = client.get(path, headers=headers)
        usual = client.get(f"{path}?explain=false", headers=headers)
        assert refused.status_code == usual.status_code == status
        assert refused.headers["content-type"] == usual.headers["content-type"] == "application/problem+json"
        assert refused.json() | {"request_id": ""} == usual.json() | {"request_id": ""}
    assert quick == [False, False]  # of the usual questions; the quick ones were refused before there was an answer


@on_sqlite
def test_nobody_gets_it_whose_key_is_over(client, path, quick):
    made = client.post("/v1/admin/keys", json={"name": "reader", "scopes": ["read"]}).json()
    known = {"X-API-Key": made["key"]}
    assert client.get(path, headers=known).status_code == 200  # from now on the key is known in memory
    assert client.delete(f"/v1/admin/keys/{made['key_id']}").status_code == 204
    with writing(client.app.state.runtime.engine) as session:
        expired = issue_key(session, name="old", scopes=(Scope.READ,))
        expired.row.expires_at = datetime.now(UTC) - timedelta(seconds=1)
    quick.clear()
    for headers in (known, {"X-API-Key": expired.key}, {"X-API-Key": ""}, {"X-API-Key": made["key"] + "x"}):
        assert client.get(path, headers=headers).status_code == 401
    assert quick == []  # each was refused before there was an answer


@on_sqlite
def test_it_is_counted_under_its_route(client, path, quick):
    def counted() -> float:
        label = 'flowcast_requests_total{method="GET",route="/v1/links/{link_id}/forecast",status="2xx"}'
        lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(label)]
        return float(lines[0].split()[-1])

    before = counted()
    quick.clear()
    for _ in range(3):
        assert client.get(path).status_code == 200
    assert quick == [True] * 3
    assert counted() == before + 3


@on_sqlite
def test_only_json_is_sent_at_the_edge(client, path, quick):
    key = {"Authorization": f"Bearer {client.headers['X-API-Key']}", "X-API-Key": ""}
    for accept, status, media_type, at_the_edge in (
        ("*/*", 200, "application/json", True),
        ("application/json", 200, "application/json", True),
        ("application/json, text/plain, */*", 200, "application/json", False),
        ("text/csv", 200, "text/csv; charset=utf-8", False),
        ("text/html", 406, "application/problem+json", False),
    ):
        answer = client.get(path, headers={"Accept": accept, **key})
        assert (answer.status_code, answer.headers["content-type"]) == (status, media_type)
        assert quick.pop() is at_the_edge


@on_sqlite
@pytest.mark.parametrize("query", ["?horizon=0", "?horizon=5", "?horizon=01", "?horizont=1", "?horizon=1&horizon=2"])
def test_what_is_asked_otherwise_goes_the_usual_way(client, path, quick, query):
    client.get(path + query)
    client.head(path)
    client.get(path.replace("/forecast", "/nothing/forecast"))
    assert quick == [False] * 3
