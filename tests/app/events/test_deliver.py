"""Deliveries to a real server: signed, at least once, retried, and without delay for other webhooks."""

import contextlib
import hashlib
import hmac
import socket
import threading
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from standardwebhooks import Webhook as StandardWebhook
from standardwebhooks.webhooks import WebhookVerificationError

from app.core.database import writing
from app.events import messages, queries, send
from app.events.deliver import Deliverer
from app.events.tables import Webhook
from app.links.queries import link_or_404
from app.registry.tables import Activation
from tests.support.databases import on_sqlite
from tests.support.stored import MONDAY, SLOT, utc
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.support.webhook_receiver import Receiver

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
SECRET = "a-secret-for-tests"


pytestmark = pytest.mark.journey  # deliveries go to a real server


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Allow receivers much time, because the machine may be busy; tests of slow receivers set their own limit."""
    monkeypatch.setattr(send, "TIMEOUT_SECONDS", WAIT_SECONDS)


@pytest.fixture
def open_receiver():
    opened = []

    def open_one(*statuses):
        opened.append(Receiver(*statuses))
        return opened[-1]

    yield open_one
    for receiver in opened:
        receiver.close()


@pytest.fixture
def receiver(open_receiver):
    return open_receiver()


@pytest.fixture
def settings(settings, receiver):
    """Return settings that allow the receiver."""
    return settings.model_copy(update={"webhook_hosts": receiver.host})


@pytest.fixture
def runtime(client):
    return client.app.state


@pytest.fixture
def deliverer(runtime, settings):
    opened = Deliverer(runtime.engine, settings)
    yield opened
    opened.close()


@pytest.fixture
def deliver(deliverer):
    """Deliver everything that is due some seconds after a start."""

    def step(seconds=0.0):
        deliverer.step(NOW + timedelta(seconds=seconds))
        deliverer.wait()

    return step


@pytest.fixture
def hook(client, receiver):
    return make_hook(client, receiver)


@pytest.fixture
def links(put_link):
    for link_id in ("A", "B", "C"):
        put_link(link_id)


def make_hook(client, receiver, *events, secret=SECRET):
    body = {"url": receiver.url, "events": events or ["forecast", "activation"], "secret": secret}
    answer = client.post("/v1/admin/webhooks", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["webhook_id"]


def state(client, webhook_id):
    listed = client.get("/v1/admin/webhooks").json()["webhooks"]
    return next(row for row in listed if row["webhook_id"] == webhook_id)


def post(client, slot, *link_ids, count=10):
    counts = [{"link_id": link_id, "slot_start": utc(MONDAY + slot * SLOT), "count": count} for link_id in link_ids]
    assert client.post("/v1/counts", json={"counts": counts}).status_code == 200


def activation(runtime, link_id, version, previous=None):
    with writing(runtime.engine) as session:
        session.add(
            Activation(
                link_key=link_or_404(session, link_id).link_key,
                version=version,
                previous_version=previous,
                activated_at=NOW,
                activated_by="tests",
                reason="better",
                figures={"candidate": {"rmse": 9.5}},
            )
        )


def link_ids(received):
    return [link["link_id"] for link in received.payload["links"]]


class TestMessages:
    def test_forecasts_are_those_that_the_service_returns(self, client, receiver, links, hook, deliver):
        post(client, 0, "A", "B")
        deliver()
        [received] = receiver.received
        assert received.path == "/hook?from=flowcast"
        shown = client.get("/v1/forecasts?horizon=4&links=A,B").json()["links"]
        events = [{"sequence": MONDAY // SLOT, **link} for link in shown]
        head = {"type": "forecast", "event": "forecasts", "sent_at": "2026-11-16T12:00:00.000000Z"}
        assert received.payload == head | {"links": events}

    def test_only_what_is_new_comes_again(self, client, receiver, links, hook, deliver):
        post(client, 0, "A", "B")
        deliver()
        deliver(1)
        assert len(receiver.received) == 1
        post(client, 1, "B")
        deliver(2)
        deliver(3)
        assert [link_ids(received) for received in receiver.received] == [["A", "B"], ["B"]]

    @on_sqlite
    def test_a_corrected_count_issues_nothing_and_so_sends_nothing(self, client, receiver, links, hook, deliver):
        post(client, 0, "A")
        deliver()
        post(client, 0, "A", count=99)
        deliver(1)
        assert len(receiver.received) == 1

    def test_activations_from_when_the_webhook_was_made(self, client, receiver, links, runtime, deliver):
        activation(runtime, "A", 1)
        make_hook(client, receiver)
        deliver()
        assert receiver.received == []
        activation(runtime, "A", 2, previous=1)
        deliver(1)
        [received] = receiver.received
        assert received.payload["type"] == "activation"
        assert received.payload["event"] == received.headers["X-Flowcast-Event"] == "activations"
        assert received.payload["activations"] == [
            {
                "link_id": "A",
                "version": 2,
                "previous_version": 1,
                "activated_at": "2026-11-16T12:00:00Z",
                "activated_by": "tests",
                "reason": "better",
                "figures": {"candidate": {"rmse": 9.5}},
            }
        ]

    @on_sqlite
    def test_only_the_kinds_that_were_registered_for(self, client, receiver, links, runtime, deliver):
        make_hook(client, receiver, "activation")
        post(client, 0, "A")
        activation(runtime, "A", 1)
        deliver()
        deliver(1)
        assert [received.event for received in receiver.received] == ["activations"]

    @on_sqlite
    def test_no_message_is_unbounded(self, client, receiver, links, runtime, hook, deliver, monkeypatch):
        monkeypatch.setattr(messages, "LINKS_A_MESSAGE", 2)
        monkeypatch.setattr(messages, "ACTIVATIONS_A_MESSAGE", 2)
        post(client, 0, "A", "B", "C")
        for version in (1, 2, 3):
            activation(runtime, "A", version)
        deliver()
        sizes = [
            (received.event, len(received.payload.get("links") or received.payload["activations"]))
            for received in receiver.received
        ]
        assert sizes == [("activations", 2), ("activations", 1), ("forecasts", 2), ("forecasts", 1)]
        deliver(1)
        assert len(receiver.received) == 4

    def test_a_link_that_was_deleted_leaves_the_cursor(self, client, receiver, links, runtime, hook, deliver):
        post(client, 0, "A", "B")
        deliver()
        client.delete("/v1/links/A?force=true")
        post(client, 1, "B")
        deliver(1)
        with writing(runtime.engine) as session:
            row = session.get(Webhook, hook)
            assert list(messages.DeliveryCursor.of(row).marks) == [link_or_404(session, "B").link_key]


class TestSignature:
    @on_sqlite
    def test_an_independent_hmac_agrees(self, client, receiver, links, hook, deliver):
        post(client, 0, "A")
        deliver()
        [received] = receiver.received
        timestamp = received.headers["X-Flowcast-Timestamp"]
        assert int(timestamp) >= NOW.timestamp()
        pad = SECRET.encode().ljust(64, b"\0")
        inner = hashlib.sha256(bytes(b ^ 0x36 for b in pad) + timestamp.encode() + b"." + received.body).digest()
        outer = hashlib.sha256(bytes(b ^ 0x5C for b in pad) + inner).hexdigest()
        assert received.headers["X-Flowcast-Signature"] == f"sha256={outer}"
        assert hmac.compare_digest(
            outer, hmac.new(SECRET.encode(), f"{timestamp}.".encode() + received.body, "sha256").hexdigest()
        )

    @pytest.mark.parametrize("secret", [SECRET, "whsec_" + b64encode(b"32 bytes of a standard secret...").decode()])
    @on_sqlite
    def test_libraries_for_standard_webhooks_verify_it(self, client, receiver, links, settings, secret):
        made = make_hook(client, receiver, secret=secret)
        post(client, 0, "A")
        now = Deliverer(client.app.state.engine, settings)
        now.step(datetime.now(UTC))  # the library refuses what is older than five minutes
        now.close()
        assert state(client, made)["failures"] == 0
        [received] = receiver.received
        standard = secret if secret.startswith("whsec_") else "whsec_" + b64encode(secret.encode()).decode()
        assert StandardWebhook(standard).verify(received.body, received.headers)["type"] == "forecast"
        assert received.headers["webhook-timestamp"] == received.headers["X-Flowcast-Timestamp"]
        with pytest.raises(WebhookVerificationError):
            StandardWebhook("whsec_" + b64encode(b"another secret").decode()).verify(received.body, received.headers)

    @on_sqlite
    def test_a_message_keeps_its_id_until_it_arrives(self, client, receiver, links, hook, deliver):
        receiver.statuses = [500, 200]
        post(client, 0, "A")
        for seconds in (0, 600):
            deliver(seconds)
        post(client, 1, "A")
        deliver(1200)
        first, again, other = [received.headers["webhook-id"] for received in receiver.received]
        assert first == again
        assert first != other

    @on_sqlite
    def test_every_delivery_has_a_number_of_its_own(self, client, receiver, links, hook, deliver):
        for slot in range(2):
            post(client, slot, "A")
            deliver(slot)
        numbers = {received.headers["X-Flowcast-Delivery"] for received in receiver.received}
        assert len(numbers) == 2
        assert receiver.received[0].headers["Content-Type"] == "application/json"


class TestRetries:
    def test_after_500s_it_comes_again_until_it_arrives(self, client, receiver, links, hook, deliver):
        receiver.statuses = [500, 503, 200]
        post(client, 0, "A")
        deliver()
        shown = state(client, hook)
        assert (shown["state"], shown["failures"], shown["last_error"]) == ("failing", 1, "it answered 500")
        assert shown["delivered_at"] is None
        assert datetime.fromisoformat(shown["retry_at"]) >= NOW + timedelta(seconds=1)
        deliver(0.5)  # too early
        assert len(receiver.received) == 1
        deliver(600)
        assert state(client, hook)["last_error"] == "it answered 503"
        deliver(1200)
        shown = state(client, hook)
        assert (shown["state"], shown["failures"], shown["last_error"], shown["retry_at"]) == ("active", 0, None, None)
        assert shown["delivered_at"] is not None
        assert len({received.body[70:] for received in receiver.received}) == 1

    @on_sqlite
    def test_what_arrived_before_a_failure_does_not_come_again(self, client, receiver, links, runtime, hook, deliver):
        receiver.statuses = [200, 500, 200]
        activation(runtime, "A", 1)
        post(client, 0, "A")
        deliver()
        assert state(client, hook)["failures"] == 1
        deliver(600)
        assert [received.event for received in receiver.received] == ["activations", "forecasts", "forecasts"]

    @on_sqlite
    def test_redirects_are_not_followed(self, client, receiver, links, hook, deliver):
        receiver.statuses = [307]
        post(client, 0, "A")
        deliver()
        assert [received.path for received in receiver.received] == ["/hook?from=flowcast"]
        assert state(client, hook)["last_error"] == "it answered 307; redirects are not followed"

    @on_sqlite
    def test_nothing_listens_at_the_address(self, client, receiver, links, hook, deliver):
        receiver.close()
        post(client, 0, "A")
        deliver()
        assert "refused" in state(client, hook)["last_error"].lower()

    @on_sqlite
    def test_an_address_that_is_allowed_no_more(self, client, receiver, links, runtime, hook, settings):
        post(client, 0, "A")
        strict = Deliverer(runtime.engine, settings.model_copy(update={"webhook_hosts": "hooks.example"}))
        strict.step(NOW)
        strict.close()
        assert receiver.received == []
        assert "FLOWCAST_WEBHOOK_HOSTS" in state(client, hook)["last_error"]

    @on_sqlite
    def test_given_up_after_three_days(self, client, receiver, links, runtime, hook, deliver):
        receiver.statuses = [500]
        with writing(runtime.engine) as session:
            session.get(Webhook, hook).failures = queries.MOST_FAILURES - 2
        post(client, 0, "A")
        deliver()
        shown = state(client, hook)
        assert (shown["state"], shown["failures"]) == ("failing", queries.MOST_FAILURES - 1)
        deliver(3 * 3600)
        shown = state(client, hook)
        assert (shown["state"], shown["failures"], shown["retry_at"]) == ("disabled", queries.MOST_FAILURES, None)
        deliver(86_400)
        assert len(receiver.received) == 2

    def test_waits_double_to_an_hour_and_add_up_to_three_days(self):
        waits = [queries.wait_seconds(n) for n in range(1, queries.MOST_FAILURES)]
        assert waits[:5] == [1, 2, 4, 8, 16]
        assert max(waits) == 3600
        assert 3 * 86_400 <= sum(waits) < 3 * 86_400 + 3600


class TestProcesses:
    def test_the_cursor_survives_a_restart(self, client, receiver, links, runtime, settings, hook, deliver):
        post(client, 0, "A", "B")
        deliver()
        post(client, 1, "A")
        restarted = Deliverer(runtime.engine, settings)
        restarted.step(NOW + timedelta(seconds=1))
        restarted.close()
        assert [link_ids(received) for received in receiver.received] == [["A", "B"], ["A"]]

    def test_of_two_processes_one_delivers(self, client, receiver, links, runtime, settings, hook, deliverer):
        receiver.answers.clear()  # the first delivery is under way while the other process looks
        post(client, 0, "A")
        other = Deliverer(runtime.engine, settings)
        for one in (deliverer, other):
            one.step(NOW)
        wait_until(lambda: receiver.received)
        receiver.answers.set()
        for one in (deliverer, other):
            one.wait()
            one.step(NOW + timedelta(seconds=1))
        other.close()
        assert len(receiver.received) == 1

    def test_what_a_dead_process_had_taken_is_free_again(self, client, receiver, links, runtime, hook, deliver):
        with writing(runtime.engine) as session:
            session.get(Webhook, hook).retry_at = NOW + timedelta(seconds=60)
        post(client, 0, "A")
        deliver(59)
        assert receiver.received == []
        deliver(60)
        assert len(receiver.received) == 1

    @on_sqlite
    def test_one_slow_address_delays_no_other(self, client, links, runtime, settings, open_receiver):
        slow, quick = open_receiver(), open_receiver()
        slow.answers.clear()
        allowed = settings.model_copy(update={"webhook_hosts": f"{slow.host},{quick.host}"})
        with writing(runtime.engine) as session:
            for one in (slow, quick):
                row = {"url": one.url, "events": "forecasts", "secret": SECRET, "created_by": "tests"}
                session.add(Webhook(**row, created_at=NOW, last_activation=0, failures=0))
        deliverer = Deliverer(runtime.engine, allowed)

        def delivered(n):
            deliverer.step(NOW)
            return len(quick.received) == n

        for slot in range(3):
            post(client, slot, "A")
            wait_until(partial(delivered, slot + 1))
        wait_until(lambda: slow.received)
        assert len(slow.received) == 1  # which is not answered yet
        slow.answers.set()
        deliverer.close()

    def test_an_answer_that_comes_drop_by_drop_is_cut_off(self, monkeypatch):
        monkeypatch.setattr(send, "TIMEOUT_SECONDS", 0.5)
        listening, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

        def drip():
            taken, _ = listening.accept()
            with taken, contextlib.suppress(OSError):
                while not over.wait(0.05):  # while the client reads
                    taken.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(send.NotDelivered):
            send.send(f"http://127.0.0.1:{listening.getsockname()[1]}/", {}, b"{}")
        over.set()
        thread.join()
        listening.close()

    @on_sqlite
    def test_a_step_never_raises(self, deliverer, monkeypatch, links, hook):
        def fail(*_):
            raise RuntimeError("a defect")

        monkeypatch.setattr("app.events.deliver.due_webhooks", fail)
        deliverer.step(NOW)
