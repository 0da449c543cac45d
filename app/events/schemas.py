"""Webhooks in requests and responses."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from app.core.errors import worded
from app.events.queries import MOST_FAILURES
from app.events.send import LONGEST_URL, SECRET_PREFIX, URL_PATTERN, signing_key
from app.events.tables import Webhook
from app.http.examples import with_example

EXAMPLE: JsonDict = {"url": "https://control.example.org/flowcast", "events": ["forecast", "activation"]}
WebhookPath = Annotated[int, Path(ge=1, le=2**31 - 1, description="The webhook's number", examples=[1])]


class EventKind(StrEnum):
    """The types of events; the plurals, which are deprecated, mean the same."""

    FORECAST = "forecast"
    ACTIVATION = "activation"

    @classmethod
    def _missing_(cls, value: object) -> EventKind | None:
        return next((kind for kind in cls if value == f"{kind}s"), None)


def _once_each(kinds: list[EventKind]) -> list[EventKind]:
    if len(set(kinds)) < len(kinds):
        raise ValueError("it must name each kind once")
    return kinds


def _usable(secret: str | None) -> str | None:
    if secret is not None and secret.startswith(SECRET_PREFIX) and signing_key(secret) == secret.encode():
        raise ValueError("it must have base64 after whsec_")
    return secret


Kinds = Annotated[
    list[EventKind],
    Field(min_length=1, max_length=2, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_once_each),
]


class NewWebhook(BaseModel):
    """An address to push events to."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE]})

    url: Annotated[
        str,
        Field(
            max_length=LONGEST_URL,
            pattern=URL_PATTERN,
            description="http or https, without user info or fragment, to a host that FLOWCAST_WEBHOOK_HOSTS allows",
        ),
    ]
    events: Annotated[Kinds, Field(description="What to push")]
    secret: Annotated[
        str | None,
        Field(
            min_length=16,
            max_length=128,
            pattern=worded(r"^[!-~]+$", "must be visible ASCII characters, without spaces"),
            description="What messages are signed with, visible ASCII: `whsec_` and base64, which Standard Webhooks "
            "libraries take as it is, or anything else, of which they take `whsec_` and its base64; made if left out",
        ),
        AfterValidator(_usable),
    ] = None


class WebhookOut(BaseModel):
    """A webhook, without its secret, and the state of its delivery."""

    webhook_id: Annotated[int, Field(examples=[1])]
    url: Annotated[str, Field(examples=[EXAMPLE["url"]])]
    events: Annotated[list[EventKind], Field(examples=[EXAMPLE["events"]])]
    state: Annotated[
        Literal["active", "failing", "disabled"],
        Field(description="`disabled` after three days of failures: delete it and create it again"),
    ]
    created_at: datetime
    created_by: Annotated[str, Field(description="Id of the key that created it", examples=["3f9c0a1b2d4e"])]
    delivered_at: Annotated[datetime | None, Field(description="When a message last arrived")]
    failures: Annotated[int, Field(description="In a row", examples=[0])]
    retry_at: Annotated[datetime | None, Field(description="When delivery is tried again; null unless it is failing")]
    last_error: Annotated[str | None, Field(description="Why the last try failed; null after one that succeeded")]

    @classmethod
    def of(cls, row: Webhook) -> WebhookOut:
        """Return a row as it is shown."""
        state = "disabled" if row.failures >= MOST_FAILURES else "failing" if row.failures else "active"
        names = ("url", "created_at", "created_by", "delivered_at", "failures", "last_error")
        return cls.model_validate(
            {name: getattr(row, name) for name in names}
            | {"webhook_id": row.id, "events": row.events.split(","), "state": state}
            | {"retry_at": row.retry_at if state == "failing" else None}
        )


@with_example
class MadeWebhook(WebhookOut):
    """A new webhook; its secret is shown here and never again."""

    secret: Annotated[str, Field(examples=["whsec_…"])]  # nosec B105: an example

    @classmethod
    def made(cls, row: Webhook) -> MadeWebhook:
        """Return a new row with its secret."""
        return cls(**WebhookOut.of(row).model_dump(), secret=row.secret)


@with_example
class WebhookList(BaseModel):
    """Every webhook, the oldest first."""

    webhooks: list[WebhookOut]
