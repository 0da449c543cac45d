"""Deliver events to webhooks, at least once each; a slow address does not delay the others."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from time import monotonic

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.change_feed import watch_changes
from app.core.database import reading, writing
from app.counts.queries import newest_slot_end
from app.events.messages import DeliveryCursor, messages
from app.events.queries import (
    MOST_FAILURES,
    claim_webhook,
    due_webhooks,
    latest_forecasts,
    release_webhook,
    wait_after,
    wait_for_activations,
)
from app.events.schemas import EventKind
from app.events.send import NotDelivered, is_allowed, send, signed_headers
from app.events.tables import Webhook
from app.registry.queries import newest_activation
from app.settings import ClockKind, Settings

MOST_AT_ONCE = 16
LEASE = timedelta(seconds=60)  # after which a webhook is free again although its deliverer ended
MOST_SECONDS = 40.0  # of one delivery, well within the lease; what is left comes with the next

log = logging.getLogger("flowcast.webhooks")


class Deliverer:
    """Sends what is new, in threads of its own, and stores in the database what was sent."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._changes = watch_changes(engine)
        self._version: object = None  # of the change feed when the latest events were read
        self._latest = DeliveryCursor(0, {})
        self._feed_now = 0
        self._under_way: dict[int, threading.Thread] = {}
        self._closed = threading.Event()

    def step(self, now: datetime) -> None:
        """Start the deliveries that are due; exceptions are logged and not raised."""
        try:
            self._under_way = {key: thread for key, thread in self._under_way.items() if thread.is_alive()}
            with reading(self._engine) as session:
                due = [row for row in due_webhooks(session, now) if row.id not in self._under_way]
            if not due:
                return
            self._read_latest()
            for row in due:
                if len(self._under_way) < MOST_AT_ONCE and not self._closed.is_set() and self._has_news(row):
                    self._begin(row, now)
        except SQLAlchemyError as problem:
            log.warning("webhooks wait for the database", extra={"reason": type(problem).__name__})
        except Exception:  # the thread that calls this must go on
            log.exception("events were not delivered to webhooks")

    def wait(self, seconds: float = 30.0) -> None:
        """Wait for deliveries under way."""
        until = monotonic() + seconds
        for thread in list(self._under_way.values()):
            thread.join(timeout=max(0.0, until - monotonic()))

    def close(self) -> None:
        """Start no more deliveries, and wait for those under way."""
        self._closed.set()
        self.wait()
        self._changes.close()

    def _read_latest(self) -> None:
        """Read the latest events, if anything was written since they were last read."""
        version = self._changes.served_version()
        if version == self._version:
            return
        with reading(self._engine) as session:
            wait_for_activations(session)
            activation = newest_activation(session)
        with reading(self._engine) as session:
            self._feed_now = (newest_slot_end(session) or 0) if self._settings.clock is ClockKind.FEED else 0
            self._latest = DeliveryCursor(activation, latest_forecasts(session))
        self._version = version

    def _has_news(self, row: Webhook) -> bool:
        cursor = DeliveryCursor.of(row)
        if EventKind.ACTIVATION in row.events and self._latest.activation > cursor.activation:
            return True
        return EventKind.FORECAST in row.events and bool(cursor.changed(self._latest))

    def _begin(self, row: Webhook, now: datetime) -> None:
        lease = now + LEASE
        with writing(self._engine, derived=True, served=False) as session:
            if not claim_webhook(session, row, lease):
                return
        arguments = row, self._latest, self._feed_now, now, lease
        thread = threading.Thread(target=self._deliver, args=arguments, name="webhook", daemon=True)
        self._under_way[row.id] = thread
        thread.start()

    def _deliver(self, row: Webhook, latest: DeliveryCursor, feed_now: int, now: datetime, lease: datetime) -> None:
        cursor, arrived, failure = DeliveryCursor.of(row), False, None
        clock = feed_now if self._settings.clock is ClockKind.FEED else int(now.timestamp())
        began = monotonic()
        try:
            if not is_allowed(row.url, self._settings.allowed_webhook_hosts):
                raise NotDelivered("its host is no longer in FLOWCAST_WEBHOOK_HOSTS")
            for message in messages(self._engine, row.events, cursor, latest, now, clock):
                if message.body is not None:
                    sent_at = now + _since(began)
                    send(
                        row.url,
                        signed_headers(row.secret, message.id, message.type, message.body, sent_at),
                        message.body,
                    )
                    arrived = True
                cursor = message.after
                if self._closed.is_set() or monotonic() > began + MOST_SECONDS:
                    break
        except NotDelivered as problem:
            failure = str(problem)
        except Exception as problem:  # tried again like any other
            log.exception("events were not delivered to a webhook", extra={"webhook": row.id})
            failure = type(problem).__name__
        self._store(row, cursor, arrived, failure, now + _since(began), lease)

    def _store(
        self, row: Webhook, cursor: DeliveryCursor, arrived: bool, failure: str | None, now: datetime, lease: datetime
    ) -> None:
        values = cursor.columns()
        if arrived:
            values["delivered_at"] = now
        if failure is None:
            values |= {"failures": 0, "retry_at": None, "last_error": None}
        else:
            failures = 1 if arrived else row.failures + 1
            values |= {"failures": failures, "retry_at": now + wait_after(failures), "last_error": failure}
            facts = {"webhook": row.id, "failures": failures, "reason": failure}
            log.log(logging.ERROR if failures >= MOST_FAILURES else logging.INFO, "webhook failed", extra=facts)
        try:
            with writing(self._engine, derived=True, served=False) as session:
                release_webhook(session, row.id, lease, **values)
        except SQLAlchemyError as problem:  # the lease ends by itself, and the messages come again
            log.warning("a delivery was not stored", extra={"webhook": row.id, "reason": type(problem).__name__})


def _since(began: float) -> timedelta:
    return timedelta(seconds=monotonic() - began)
