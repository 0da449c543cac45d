"""Make a webhook."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Collection
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from app.core.errors import NotYet
from app.events.addresses import require_allowed
from app.events.send import SECRET_PREFIX
from app.events.tables import Webhook
from app.events.webhook_queries import all_webhooks
from app.events.webhook_schemas import EventKind, NewWebhook
from app.registry.activations import newest_activation

MOST_WEBHOOKS = 100


def register_webhook(session: Session, wanted: NewWebhook, hosts: Collection[str], *, created_by: str) -> Webhook:
    """Store a webhook that hears of activations from now on, and of forecasts from the latest on."""
    require_allowed(wanted.url, hosts)
    if len(all_webhooks(session)) >= MOST_WEBHOOKS:
        raise NotYet(f"there are {MOST_WEBHOOKS} webhooks already; delete one first")
    row = Webhook(
        url=wanted.url,
        events=",".join(kind for kind in EventKind if kind in wanted.events),
        secret=wanted.secret or SECRET_PREFIX + b64encode(secrets.token_bytes(32)).decode(),
        created_at=datetime.now(UTC),
        created_by=created_by,
        last_activation=newest_activation(session),
        failures=0,
    )
    session.add(row)
    session.flush()
    return row
