"""Webhooks over REST."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Collection
from datetime import UTC, datetime

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from app.core.errors import NotYet
from app.events.send import SECRET_PREFIX, require_allowed
from app.events.tables import Webhook
from app.events.webhook_queries import all_webhooks, webhook_or_404
from app.events.webhook_schemas import EventKind, MadeWebhook, NewWebhook, WebhookList, WebhookOut, WebhookPath
from app.http.dependencies import ReadSession, SettingsDep, WriteSession
from app.http.problems import problem_responses
from app.keys.authentication import AdminKey
from app.registry.queries import newest_activation

MOST_WEBHOOKS = 100


def register_webhook(session: Session, wanted: NewWebhook, hosts: Collection[str], *, created_by: str) -> Webhook:
    """Store a webhook that is sent activations from now on, and forecasts from the latest on."""
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


router = APIRouter(prefix="/v1/admin/webhooks", tags=["events"])


@router.post("", status_code=201, summary="Make a webhook", responses=problem_responses(409))
def post_webhook(body: NewWebhook, caller: AdminKey, session: WriteSession, settings: SettingsDep) -> MadeWebhook:
    """Push events to an address, signed; the answer shows the secret, and nothing ever will again.

    Forecasts begin with the latest of every link, activations with the next one. Each message is a
    POST of JSON with the headers of Standard Webhooks, `webhook-id`, `webhook-timestamp` and
    `webhook-signature`. Answer 2xx within 5 s; anything else is tried again, so a message may come
    twice. The headers `X-Flowcast-…` are deprecated.
    """
    hosts = settings.allowed_webhook_hosts
    return MadeWebhook.made(register_webhook(session, body, hosts, created_by=caller.key_id))


@router.get("", summary="All webhooks")
def get_webhooks(_caller: AdminKey, session: ReadSession) -> WebhookList:
    """List every webhook and how its delivery stands; never its secret."""
    return WebhookList(webhooks=[WebhookOut.of(row) for row in all_webhooks(session)])


@router.delete("/{webhook_id}", status_code=204, summary="Delete a webhook", responses=problem_responses(404))
def delete_webhook(webhook_id: WebhookPath, _caller: AdminKey, session: WriteSession) -> Response:
    """Push nothing more to an address; a message under way may still arrive."""
    session.delete(webhook_or_404(session, webhook_id))
    return Response(status_code=204)
