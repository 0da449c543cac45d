"""Push events to webhooks: at least once each, and one slow address holds up no other."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.change_feed import watch_changes
from app.core.database import reading, writing
from app.counts.queries import newest_slot_end
from app.events.messages import Cursor, News, changed, messages
from app.events.payloads import ACTIVATION, FORECAST
from app.events.send import Address, NotDelivered, send, signed_headers
from app.events.tables import Webhook
from app.events.webhook_queries import (
    MOST_FAILURES,
    claim_webhook,
    due_webhooks,
    latest_forecasts,
    release_webhook,
    settle_activations,
    wait_after,
)
from app.registry.queries import newest_activation
from app.settings import ClockKind, Settings

MOST_AT_ONCE = 16
LEASE = timedelta(seconds=60)  # a webhook whose deliverer died is free again after this
MOST_SECONDS = 40.0  # of one delivery, well within the lease; what is left comes with the next

log = logging.getLogger("flowcast.webhooks")


class Deliverer:
    """Looks what is new, and sends it in threads of its own; what was sent is noted in the database."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._changes = watch_changes(engine)
        self._stamp: object = None
        self._news: News | None = None
        self._under_way: dict[int, threading.Thread] = {}
        self._closed = threading.Event()

    def step(self, now: datetime) -> None:
        """Begin to deliver whatever is due; never raises."""
        try:
            self._under_way = {key: thread for key, thread in self._under_way.items() if thread.is_alive()}
            with reading(self._engine) as session:
                due = [row for row in due_webhooks(session, now) if row.id not in self._under_way]
            if not due:
                return
            news = self._look(now)
            for row in due:
                if len(self._under_way) < MOST_AT_ONCE and not self._closed.is_set() and _has_news(row, news):
                    self._begin(row, news, now)
        except SQLAlchemyError as problem:
            log.warning("webhooks wait for the database", extra={"reason": type(problem).__name__})
        except Exception:  # the thread that calls this must live on
            log.exception("webhooks were not delivered to")

    def wait(self, seconds: float = 30.0) -> None:
        """Wait for what is under way."""
        until = monotonic() + seconds
        for thread in list(self._under_way.values()):
            thread.join(timeout=max(0.0, until - monotonic()))

    def close(self) -> None:
        """Begin nothing more, and let messages under way arrive."""
        self._closed.set()
        self.wait()
        self._changes.close()

    def _look(self, now: datetime) -> News:
        """Ask the database what there is, if anything was written since it was last asked."""
        stamp = self._changes.served_version()
        if self._news is None or stamp != self._stamp:
            with reading(self._engine) as session:
                settle_activations(session)
                activation = newest_activation(session)
            with reading(self._engine) as session:
                feed = newest_slot_end(session) if self._settings.clock is ClockKind.FEED else None
                self._news = News(activation, latest_forecasts(session), feed or 0)
            self._stamp = stamp
        return self._news if self._settings.clock is ClockKind.FEED else self._news._replace(now=int(now.timestamp()))

    def _begin(self, row: Webhook, news: News, now: datetime) -> None:
        lease = now + LEASE
        with writing(self._engine, derived=True, served=False) as session:
            if not claim_webhook(session, row, lease):
                return
        thread = threading.Thread(target=self._deliver, args=(row, news, now, lease), name="webhook", daemon=True)
        self._under_way[row.id] = thread
        thread.start()

    def _deliver(self, row: Webhook, news: News, now: datetime, lease: datetime) -> None:
        cursor, arrived, failure = Cursor.of(row), False, None
        began = monotonic()
        try:
            address = Address.of(row.url)
            if not address.is_allowed(self._settings.allowed_webhook_hosts):
                raise NotDelivered("its host is not in FLOWCAST_WEBHOOK_HOSTS any more")
            for message in messages(self._engine, row.events, cursor, news, now):
                if message.body is not None:
                    sent_at = now + _since(began)
                    headers = signed_headers(row.secret, message.id, message.type, message.body, sent_at)
                    send(address, headers, message.body)
                    arrived = True
                cursor = message.after
                if self._closed.is_set() or monotonic() > began + MOST_SECONDS:
                    break
        except NotDelivered as problem:
            failure = str(problem)
        except Exception as problem:  # tried again like any other
            log.exception("webhook was not delivered to", extra={"webhook": row.id})
            failure = type(problem).__name__
        self._note(row, cursor, arrived, failure, now + _since(began), lease)

    def _note(
        self, row: Webhook, cursor: Cursor, arrived: bool, failure: str | None, now: datetime, lease: datetime
    ) -> None:
        values: dict[str, Any] = {"last_activation": cursor.activation, "last_forecast": cursor.written()}
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
            log.warning("a delivery was not noted", extra={"webhook": row.id, "reason": type(problem).__name__})


def _since(began: float) -> timedelta:
    return timedelta(seconds=monotonic() - began)


def _has_news(row: Webhook, news: News) -> bool:
    cursor = Cursor.of(row)
    if ACTIVATION in row.events and news.activation > cursor.activation:
        return True
    return FORECAST in row.events and bool(changed(cursor, news))
