"""Webhooks over REST."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.events.register_webhook import register_webhook
from app.events.webhook_queries import all_webhooks, webhook_or_404
from app.events.webhook_schemas import MadeWebhook, NewWebhook, WebhookList, WebhookOut, WebhookPath
from app.http.dependencies import ReadSession, SettingsDep, WriteSession
from app.http.problems import problem_responses
from app.keys.dependencies import AdminKey

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
