"""Every error in one shape, RFC 9457's ``application/problem+json``: how it is written and documented, and for what."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import exc as database_errors
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from app.core.database import UNREACHABLE
from app.core.errors import (
    MOST_ERRORS,
    REQUIRED,
    FieldError,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Problem,
    ProblemType,
    Unavailable,
    UnsupportedMediaType,
    broken_rule,
    shown_value,
)
from app.http.requests import JSON, allowed_methods

log = logging.getLogger("flowcast.problems")

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "flowcast.request_id"  # in the ASGI scope of a request
REF = {"$ref": "#/components/schemas/Problem"}
RETRY_SECONDS = "5"
# Where integrity is violated another request may have been faster: this one can be sent again.
PASSING = (*UNREACHABLE, database_errors.IntegrityError)
UNSTORABLE = (database_errors.DataError, OverflowError, UnicodeEncodeError)
SECONDS = {"description": "Seconds to wait", "schema": {"type": "string", "pattern": "^[0-9]+$"}}
HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "How to send a key", "schema": {"type": "string"}}},
    429: {"Retry-After": SECONDS},
    503: {"Retry-After": SECONDS},
}


EXAMPLE: dict[str, Any] = {
    "type": ProblemType.INVALID.uri,
    "title": Invalid.title,
    "status": ProblemType.INVALID.status,
    "detail": "zone='Mars/Olympus' is refused; it must be an IANA name such as Europe/Berlin",
    "instance": "/v1/links/Ba",
    "errors": [
        {"field": "zone", "value": "Mars/Olympus", "reason": "must be an IANA name such as Europe/Berlin"},
    ],
    "request_id": "5a697f8065c600000d",
}


class ProblemError(BaseModel):
    """One value that breaks a rule."""

    field: Annotated[
        str,
        Field(
            description="The name of a parameter or header, or the keys and places that lead to the value in the body",
            examples=["links.0.zone"],
        ),
    ]
    value: Annotated[str, Field(description="What it is, shortened", examples=["Mars/Olympus"])]
    reason: Annotated[str, Field(description="What it should be", examples=["must be an IANA time zone"])]


class ProblemBody(BaseModel):
    """A problem, as RFC 9457 defines it."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    type: Annotated[str, Field(json_schema_extra={"format": "uri-reference"})]
    title: str
    status: int
    detail: str
    instance: Annotated[str, Field(description="The path of the request")]
    errors: list[ProblemError]
    request_id: Annotated[str, Field(description="The same as in X-Request-ID and in the log")]


def problem_responses(*types: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Document problems by their status, for ``responses=`` of a route."""
    return {one.status: _response([other for other in types if other.status == one.status]) for one in types}


def _response(types: Sequence[ProblemType]) -> dict[str, Any]:
    description = "; ".join(f"`{one.uri}`: {one.when}" for one in types)
    headers = {"headers": HEADERS[types[0].status]} if types[0].status in HEADERS else {}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": REF}}} | headers


def problem_response(scope: Scope, problem: Problem) -> Response:
    """Return a problem in the one shape that all errors have."""
    content = {
        "type": problem.problem_type.uri,
        "title": problem.title,
        "status": problem.status,
        "detail": _clean(problem.detail),
        "instance": _clean(scope["path"]),
        "errors": [
            {"field": _clean(e.field), "value": _clean(e.value), "reason": _clean(e.reason)}
            for e in problem.errors[:MOST_ERRORS]
        ],
        "request_id": scope.get(REQUEST_ID, ""),
    }
    headers = {"Retry-After": RETRY_SECONDS} if problem.status == 503 else {}
    return Response(json.dumps(content), problem.status, headers | problem.headers, MEDIA_TYPE)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # a lone surrogate is no character


def add_problem_handlers(app: FastAPI) -> None:
    """Make an app answer every error with a problem; RequestMiddleware answers unexpected exceptions."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    for passing in PASSING:
        app.add_exception_handler(passing, _on_database_failure)
    for unstorable in UNSTORABLE:
        app.add_exception_handler(unstorable, _on_unstorable)


async def _on_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem_response(request.scope, problem)


async def _on_invalid_request(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    if isinstance(problem.body, bytes):  # FastAPI parses a body only if its Content-Type is JSON's
        media_type = request.headers.get("content-type", "")
        return problem_response(request.scope, UnsupportedMediaType.named(media_type, JSON))
    found = problem.errors()
    errors = field_errors(found[:MOST_ERRORS], problem.body) or [FieldError("body", "", "must follow the schema")]
    first = errors[0]
    detail = f"{first.field}={first.value!r} is refused; it {first.reason}"
    if first.reason == REQUIRED:
        detail = f"{first.field} {REQUIRED}"
    if (n := len(found) if len(found) > MOST_ERRORS else len(errors)) > 1:
        detail = f"{n} values are refused; the first: {detail}"
    return problem_response(request.scope, Invalid(detail, errors))


async def _on_http_exception(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, HTTPException)
    scope, status, headers = request.scope, raised.status_code, dict(raised.headers or {})
    problem = Problem.with_status(status, str(raised.detail), headers)
    if isinstance(raised.__cause__, Problem):  # raised by app.server.bodies while FastAPI was reading the body
        problem = raised.__cause__
    elif status == 400:  # FastAPI cannot read the body
        problem = Invalid.field("body", "", "must match its Content-Type, in UTF-8")
    elif status == 404:
        problem = NotFound(f"there is nothing at {scope['path']}", headers=headers)
    elif status == 405:
        allowed = ", ".join(sorted(allowed_methods(scope)))
        detail = f"{scope['method']} is not possible here; possible are {allowed}"
        problem = MethodNotAllowed(detail, headers=headers | {"Allow": allowed})
    return problem_response(scope, problem)


async def _on_database_failure(request: Request, problem: Exception) -> Response:
    unreachable = request.scope["app"].state.change_feed.unreachable  # then one line is enough
    facts = {"request_id": request.scope.get(REQUEST_ID), "reason": type(problem).__name__}
    log.error("the database failed", exc_info=None if unreachable else problem, extra=facts)
    detail = "the database cannot process this request at the moment; try again shortly"
    return problem_response(request.scope, Unavailable(detail))


async def _on_unstorable(request: Request, problem: Exception) -> Response:
    log.warning("unstorable value", exc_info=problem, extra={"request_id": request.scope.get(REQUEST_ID)})
    return problem_response(request.scope, Invalid("a text or number in the request cannot be stored"))


def field_errors(found: Iterable[Mapping[str, Any]], body: object) -> list[FieldError]:
    """Return Pydantic's errors as one error for each field of a request; members of a union are joined by "or"."""
    errors: dict[str, FieldError] = {}
    for error in (_field_error(one, body) for one in found):
        if (known := errors.get(error.field)) is None:
            errors[error.field] = error
        elif error.reason not in known.reason:
            errors[error.field] = known._replace(reason=f"{known.reason}, or {error.reason.removeprefix('must be ')}")
    # Where a part of a value is refused, other members of the union refused the whole of it.
    return [error for error in errors.values() if not any(field.startswith(f"{error.field}.") for field in errors)]


def _field_error(error: Mapping[str, Any], body: object) -> FieldError:
    place, kind, context = error["loc"], error["type"], error.get("ctx", {})
    message, value = str(error["msg"]), error.get("input")
    if kind == "json_invalid":
        where = f" at character {place[1]}" if len(place) > 1 and isinstance(place[1], int) else ""
        return FieldError("body", "", f"must be JSON; {context.get('error', message)}{where}")
    path = list(_sent_path(place[1:], body)) if place[0] == "body" else list(map(str, place[1:]))
    if kind == "missing":
        return FieldError(".".join([*path, str(place[-1])] if place[0] == "body" else path), "", REQUIRED)
    if "discriminator" in context:  # a union's, whose members are known by the value of one key
        path.append(context["discriminator"].strip("'"))
        if kind == "union_tag_not_found":
            return FieldError(".".join(path), "", REQUIRED)
        value, reason = context["tag"], f"must be one of {context['expected_tags']}"
    else:
        reason = broken_rule(error)
    return FieldError(".".join(path) or "body", shown_value(value), reason)


def _sent_path(place: Sequence[str | int], body: object) -> Iterator[str]:
    """Yield the keys and places that lead to a value in a body; Pydantic names its validators in between, too."""
    for step in place:
        if isinstance(body, dict):
            found = step in body
        else:
            found = isinstance(body, list) and isinstance(step, int) and step < len(body)
        if found:
            body = body[step]  # type: ignore[index]
            yield str(step)
