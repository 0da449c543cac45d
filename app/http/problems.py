"""Every error in one shape, RFC 9457's ``application/problem+json``: how it is written and how it is documented."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.responses import Response
from starlette.types import Scope

from app.core.errors import MOST_ERRORS, FieldError, Problem

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "flowcast.request_id"  # in the ASGI scope of a request
REF = {"$ref": "#/components/schemas/Problem"}
RETRY_SECONDS = "5"
SLUGS = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    408: "too-slow",
    409: "not-yet",
    413: "too-large",
    415: "unsupported-media-type",
    422: "invalid",
    429: "too-many-requests",
    431: "head-too-large",
    500: "internal",
    503: "unavailable",
}
MEANINGS = {
    401: "No key, or a wrong one",
    403: "A key without the scope that the call needs",
    404: "What the path names does not exist",
    406: "The call returns none of the media types in Accept",
    408: "The body did not come",
    409: "Not possible in the present state",
    413: "A body or a batch past its limit",
    415: "A body in a language that is not spoken here",
    422: "A value breaks a rule",
    429: "More requests than the limit",
    503: "The database is unreachable for now (`/problems/unavailable`), or too many requests are waiting"
    " (`/problems/overloaded`: nothing of this one was done)",
}
SECONDS = {"description": "Seconds to wait", "schema": {"type": "string", "pattern": "^[0-9]+$"}}
HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "How to send a key", "schema": {"type": "string"}}},
    429: {"Retry-After": SECONDS},
    503: {"Retry-After": SECONDS},
}


class ProblemError(BaseModel):
    """One value that breaks a rule."""

    field: Annotated[str, Field(description="Where it is", examples=["body.links.0.zone"])]
    value: Annotated[str, Field(description="What it is, shortened", examples=["Mars/Olympus"])]
    reason: Annotated[str, Field(description="What it should be", examples=["must be an IANA time zone"])]


class ProblemBody(BaseModel):
    """What went wrong: RFC 9457."""

    type: Annotated[str, Field(json_schema_extra={"format": "uri-reference"}, examples=["/problems/not-found"])]
    title: Annotated[str, Field(examples=["Not found"])]
    status: Annotated[int, Field(examples=[404])]
    detail: Annotated[str, Field(examples=["link '0970-7' does not exist"])]
    instance: Annotated[str, Field(description="The path of the request", examples=["/v1/links/0970-7"])]
    errors: list[ProblemError]
    request_id: Annotated[str, Field(description="The same as in X-Request-ID and in the log")]


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document problems, for ``responses=`` of a route."""
    return {status: _response(status) for status in statuses}


def problem_response(
    scope: Scope,
    status: int,
    title: str,
    detail: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
    slug: str = "",
) -> Response:
    """Return a problem in the one shape that all errors have."""
    content = {
        "type": f"/problems/{slug or SLUGS.get(status, str(status))}",
        "title": title,
        "status": status,
        "detail": _clean(detail),
        "instance": _clean(scope["path"]),
        "errors": [
            {"field": _clean(e.field), "value": _clean(e.value), "reason": _clean(e.reason)}
            for e in errors[:MOST_ERRORS]
        ],
        "request_id": scope.get(REQUEST_ID, ""),
    }
    return Response(json.dumps(content), status, dict(headers or {}), MEDIA_TYPE)


def response_to(scope: Scope, problem: Problem) -> Response:
    """Render a problem of ours."""
    headers = dict(problem.headers)
    if problem.status == 503:
        headers.setdefault("Retry-After", RETRY_SECONDS)
    return problem_response(scope, problem.status, problem.title, problem.detail, problem.errors, headers, problem.slug)


def _response(status: int) -> dict[str, Any]:
    described = {
        "description": MEANINGS.get(status, HTTPStatus(status).phrase),
        "content": {MEDIA_TYPE: {"schema": REF}},
    }
    return described | ({"headers": HEADERS[status]} if status in HEADERS else {})


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # a lone surrogate is no character
