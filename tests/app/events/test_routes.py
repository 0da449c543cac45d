"""Webhooks over REST: made, listed without their secret, deleted; and which addresses are refused."""

from base64 import b64decode

import pytest
from pydantic import ValidationError

from app.events.send import is_allowed
from app.settings import Settings
from tests.support.databases import on_sqlite

HOOK = {"url": "https://hooks.example/flowcast", "events": ["activation", "forecast"]}


@pytest.fixture
def settings(settings):
    """Return settings that allow one host."""
    return settings.model_copy(update={"webhook_hosts": "hooks.example"})


def make(client, **fields):
    return client.post("/v1/admin/webhooks", json=HOOK | fields)


class TestPost:
    def test_the_secret_is_made_and_shown_once(self, client):
        answer = make(client)
        assert answer.status_code == 201, answer.text
        made = answer.json()
        assert len(b64decode(made["secret"].removeprefix("whsec_"), validate=True)) == 32
        [listed] = client.get("/v1/admin/webhooks").json()["webhooks"]
        assert listed == {name: value for name, value in made.items() if name != "secret"}
        assert made["secret"] not in client.get("/v1/admin/webhooks").text
        assert (listed["url"], listed["events"]) == (HOOK["url"], ["forecast", "activation"])
        assert (listed["state"], listed["failures"], listed["created_by"]) == ("active", 0, "environment")
        assert (listed["delivered_at"], listed["retry_at"], listed["last_error"]) == (None, None, None)

    def test_the_plural_names_of_events_mean_the_same(self, client):
        assert make(client, events=["forecasts", "activations"]).json()["events"] == ["forecast", "activation"]

    def test_a_secret_of_ones_own(self, client):
        assert make(client, secret="sixteen-letters!").json()["secret"] == "sixteen-letters!"

    @pytest.mark.parametrize(
        "fields",
        [
            {"url": "ftp://hooks.example/"},
            {"url": "https://user:password@hooks.example/"},
            {"url": "https://user@hooks.example/"},
            {"url": "https://hooks.example/#part"},
            {"url": "https://hooks.example/a b"},
            {"url": "https://hooks.example/\n"},
            {"url": "https://hooks.example\\@evil.example/"},
            {"url": "https:///path"},
            {"url": "https://hooks.example/" + "x" * 2000},
            {"url": None},
            {"events": []},
            {"events": ["forecast", "forecast"]},
            {"events": ["forecast", "forecasts"]},
            {"events": ["counts"]},
            {"secret": "short"},
            {"secret": "x" * 129},
            {"secret": "with a space in it"},
            {"secret": "whsec_this-is-not-base64"},
            {"surprise": 1},
        ],
    )
    def test_what_breaks_a_rule(self, shared_client, fields):
        answer = make(shared_client, **fields)
        assert answer.status_code == 422
        assert answer.json()["errors"]

    @pytest.mark.parametrize(
        "url",
        [
            "https://evil.example/",
            "https://hooks.example.evil.example/",
            "https://evil.example/hooks.example",
            "https://hooks.example:8443/",
            "http://169.254.169.254/latest/meta-data",
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://[::zz]/",
            "http://hooks.example:99999/",
        ],
    )
    def test_addresses_that_are_not_allowed(self, shared_client, url):
        answer = make(shared_client, url=url)
        assert answer.status_code in (409, 422)
        assert answer.json()["errors"][0]["field"] == "url"
        if answer.status_code == 409:
            assert "FLOWCAST_WEBHOOK_HOSTS" in answer.json()["detail"]

    def test_no_more_than_a_hundred(self, client, monkeypatch):
        monkeypatch.setattr("app.events.routes.MOST_WEBHOOKS", 2)
        assert [make(client).status_code for _ in range(3)] == [201, 201, 409]

    def test_query_parameters_are_not_known(self, client):
        assert client.get("/v1/admin/webhooks?page=1").status_code == 422


class TestDelete:
    def test_it_is_gone(self, client):
        webhook_id = make(client).json()["webhook_id"]
        assert client.delete(f"/v1/admin/webhooks/{webhook_id}").status_code == 204
        assert client.get("/v1/admin/webhooks").json() == {"webhooks": []}
        assert client.delete(f"/v1/admin/webhooks/{webhook_id}").status_code == 404

    def test_a_number_that_cannot_be(self, client):
        assert client.delete("/v1/admin/webhooks/0").status_code == 422


@on_sqlite
def test_the_scope_admin_is_needed(client):
    made = client.post("/v1/admin/keys", json={"name": "reader", "scopes": ["read", "ingest"]}).json()
    for method in ("GET", "POST"):
        answer = client.request(method, "/v1/admin/webhooks", headers={"X-API-Key": made["key"]}, json=HOOK)
        assert answer.status_code == 403


class TestAllowed:
    @pytest.mark.parametrize(
        ("url", "allowed"),
        [
            ("http://a.example/", True),
            ("https://a.example/", True),
            ("https://a.example:443/x", True),
            ("https://A.Example/x", True),
            ("http://a.example:8080/", False),
            ("http://b.example:8080/", True),
            ("http://b.example/", False),
            ("http://[::1]:9000/", True),
            ("http://[::1]/", False),
            ("http://10.0.0.7/?q=1", True),
        ],
    )
    def test_a_host_allows_the_usual_ports_and_a_port_only_itself(self, url, allowed):
        hosts = Settings(webhook_hosts="a.example, B.example:8080,[::1]:9000,10.0.0.7").allowed_webhook_hosts
        assert is_allowed(url, hosts) is allowed

    def test_none_by_default(self):
        assert not is_allowed("https://a.example/", Settings().allowed_webhook_hosts)

    @pytest.mark.parametrize("hosts", ["https://a.example", "a.example/x", "a example", "*", "a.example:0", "u@a"])
    def test_what_is_no_host_is_refused_by_name(self, hosts):
        with pytest.raises(ValidationError, match=r"webhook_hosts\n.*HOST or HOST:PORT"):
            Settings(webhook_hosts=hosts)
