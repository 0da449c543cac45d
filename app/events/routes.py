"""Events over REST: ``GET /v1/events``, a stream of new forecasts and activations, and webhooks."""

from __future__ import annotations

import secrets
from base64 import b64encode
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from pydantic.json_schema import SkipJsonSchema

from app.core.errors import Conflict, ProblemType, worded
from app.events.queries import all_webhooks, webhook_or_404
from app.events.schemas import EventKind, MadeWebhook, NewWebhook, WebhookList, WebhookOut, WebhookPath
from app.events.send import SECRET_PREFIX, require_allowed
from app.events.stream import NetworkEvents
from app.events.tables import Webhook
from app.forecasts.cache import ForecastCacheDep
from app.forecasts.schemas import STATUS_EXAMPLE
from app.http.dependencies import ChangeFeedDep, EngineDep, ReadSession, SettingsDep, WriteSession
from app.http.problems import problem_responses
from app.http.sse import EventStream, event_content
from app.keys.authentication import AdminKey, ReadKey
from app.registry.queries import newest_activation

router = APIRouter(prefix="/v1", tags=["events"])

EVENT_ID = worded("^[0-9]{1,16}$", "must be the id of an event, a number of at most 16 digits")
MOST_WEBHOOKS = 100
EVENT_CONTENT = event_content("forecast", {"sequence": 1954298} | STATUS_EXAMPLE, id="1795036398982676")


@router.get(
    "/events",
    summary="Stream of events",
    response_class=Response,
    responses={200: {"content": EVENT_CONTENT, "description": "Server-sent events"}},
)
async def stream_events(
    request: Request,
    engine: EngineDep,
    changes: ChangeFeedDep,
    forecasts: ForecastCacheDep,
    settings: SettingsDep,
    caller: ReadKey,
    last_event_id: Annotated[
        str | SkipJsonSchema[None],  # a header cannot be null
        Header(
            alias="Last-Event-ID",
            pattern=EVENT_ID,
            json_schema_extra={"pattern": EVENT_ID},  # which the schema has not for a type with None
            description="The `id` of the last event read: what changed since comes first",
        ),
    ] = None,
) -> Response:
    """Stream a `forecast` event for each link that has a new latest forecast, and `activation` events.

    An event carries the latest forecast of a link, all horizons. Forecasts that are issued faster than they are
    read are skipped: `sequence`, the number of the slot `as_of_slot`, then rises by more than one, and
    `GET /v1/links/{link_id}/forecasts` has what was skipped. After `Last-Event-ID` the latest forecast of each link
    that changed since comes first; what was issued up to a minute before may come twice.
    """
    events = NetworkEvents(engine, changes, forecasts, None if last_event_id is None else int(last_event_id))
    return EventStream(request, events.version, events.look, settings.stream_seconds)


@router.post(
    "/admin/webhooks",
    status_code=201,
    summary="Create a webhook",
    responses=problem_responses(ProblemType.WEBHOOK_HOST, ProblemType.WEBHOOK_LIMIT),
)
def create_webhook(body: NewWebhook, caller: AdminKey, session: WriteSession, settings: SettingsDep) -> MadeWebhook:
    """Push events to an address, signed; the answer has the secret, which is shown only once.

    Forecasts begin with the latest of every link, activations with the next one. Each message is a
    POST of JSON with the headers of Standard Webhooks, `webhook-id`, `webhook-timestamp` and
    `webhook-signature`. Answer 2xx within 5 s; anything else is tried again, so a message may come
    twice. The headers `X-Flowcast-…` are deprecated.
    """
    require_allowed(body.url, settings.allowed_webhook_hosts)
    if len(all_webhooks(session)) >= MOST_WEBHOOKS:
        raise Conflict(ProblemType.WEBHOOK_LIMIT, f"there are {MOST_WEBHOOKS} webhooks already; delete one first")
    row = Webhook(
        url=body.url,
        events=",".join(kind for kind in EventKind if kind in body.events),
        secret=body.secret or SECRET_PREFIX + b64encode(secrets.token_bytes(32)).decode(),
        created_at=datetime.now(UTC),
        created_by=caller.key_id,
        last_activation=newest_activation(session),
        failures=0,
    )
    session.add(row)
    session.flush()
    return MadeWebhook.made(row)


@router.get("/admin/webhooks", summary="All webhooks")
def list_webhooks(_caller: AdminKey, session: ReadSession) -> WebhookList:
    """List every webhook with the state of its delivery, without its secret."""
    return WebhookList(webhooks=[WebhookOut.of(row) for row in all_webhooks(session)])


@router.delete(
    "/admin/webhooks/{webhook_id}",
    status_code=204,
    summary="Delete a webhook",
)
def delete_webhook(webhook_id: WebhookPath, _caller: AdminKey, session: WriteSession) -> Response:
    """Push nothing more to an address; a message under way may still arrive."""
    session.delete(webhook_or_404(session, webhook_id))
    return Response(status_code=204)
