"""Forecasts in memory are returned only to keys that may read them."""

from datetime import UTC, datetime, timedelta

from app.core.database import writing
from app.keys.issue import issue_key
from app.keys.tables import Scope
from tests.support.databases import on_sqlite


@on_sqlite
def test_an_ended_or_wrong_key_gets_no_forecast(client, city):
    path = f"/v1/links/{next(iter(city.counts))}/forecast"
    made = client.post("/v1/admin/keys", json={"name": "reader", "scopes": ["read"]}).json()
    known = {"X-API-Key": made["key"]}
    assert client.get(path, headers=known).status_code == 200  # from now on the key is known in memory
    assert client.delete(f"/v1/admin/keys/{made['key_id']}").status_code == 204
    with writing(client.app.state.engine) as session:
        expired = issue_key(session, name="old", scopes=(Scope.READ,))
        expired.row.expires_at = datetime.now(UTC) - timedelta(seconds=1)
    for headers in (known, {"X-API-Key": expired.key}, {"X-API-Key": ""}, {"X-API-Key": made["key"] + "x"}):
        assert client.get(path, headers=headers).status_code == 401
