"""Every error in one shape, RFC 9457's ``application/problem+json``: how it is written and documented, and for what."""

from __future__ import annotations

import json
import logging
import re
import reprlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy import exc as database_errors
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from app.core.database import UNREACHABLE
from app.core.errors import (
    MOST_ERRORS,
    FieldError,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Problem,
    Unavailable,
    shortened,
)
from app.http.requests import allowed_methods

log = logging.getLogger("flowcast.problems")

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "flowcast.request_id"  # in the ASGI scope of a request
REF = {"$ref": "#/components/schemas/Problem"}
RETRY_SECONDS = "5"
SHOULD = re.compile(r"^\w+ should ")  # Pydantic: "String should …", "Input should …"
# Another request may have been faster where integrity is hurt: sent again, this one meets what is stored now.
PASSING = (*UNREACHABLE, database_errors.IntegrityError)
UNSTORABLE = (database_errors.DataError, OverflowError, UnicodeEncodeError)
# By status: the end of the type, and what the document says where that is more than HTTP's own phrase.
STATUSES = {
    400: ("bad-request", ""),
    401: ("unauthorized", "No key, or a wrong one"),
    403: ("forbidden", "A key without the scope that the call needs"),
    404: ("not-found", "What the path names does not exist"),
    405: ("method-not-allowed", ""),
    406: ("not-acceptable", "The call returns none of the media types in Accept"),
    408: ("too-slow", "The body did not come"),
    409: ("not-yet", "Not possible in the present state"),
    413: ("too-large", "A body or a batch past its limit"),
    415: ("unsupported-media-type", "A body in a language that is not spoken here"),
    422: ("invalid", "A value breaks a rule"),
    429: ("too-many-requests", "More requests than the limit"),
    431: ("head-too-large", ""),
    500: ("internal", ""),
    503: (
        "unavailable",
        "The database is unreachable for now (`/problems/unavailable`), or too many requests are waiting"
        " (`/problems/overloaded`: nothing of this one was done)",
    ),
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


def _response(status: int) -> dict[str, Any]:
    description = STATUSES[status][1] or HTTPStatus(status).phrase
    headers = {"headers": HEADERS[status]} if status in HEADERS else {}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": REF}}} | headers


def problem_response(scope: Scope, problem: Problem) -> Response:
    """Return a problem in the one shape that all errors have."""
    slug, _ = STATUSES.get(problem.status, (str(problem.status), ""))
    content = {
        "type": f"/problems/{problem.slug or slug}",
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
    found = problem.errors()
    errors = [field_error(error) for error in found[:MOST_ERRORS]]
    first = errors[0] if errors else FieldError("body", "", "must follow the schema")
    detail = f"{first.field}={first.value!r} is refused; it {first.reason}"
    if len(found) > 1:
        detail = f"{len(found)} values are refused; the first: {detail}"
    return problem_response(request.scope, Invalid(detail, errors))


async def _on_http_exception(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, HTTPException)
    scope, status, headers = request.scope, raised.status_code, dict(raised.headers or {})
    problem = Problem.with_status(status, str(raised.detail), headers)
    if isinstance(raised.__cause__, Problem):  # raised by BodyLimitMiddleware while FastAPI was reading the body
        problem = raised.__cause__
    elif status == 400:  # FastAPI cannot read the body
        problem = Invalid.field("body", "", "must be what its Content-Type says, in UTF-8")
    elif status == 404:
        problem = NotFound(f"there is nothing at {scope['path']}", headers=headers)
    elif status == 405:
        allowed = ", ".join(sorted(allowed_methods(scope)))
        detail = f"{scope['method']} is not possible here; {allowed} is"
        problem = MethodNotAllowed(detail, headers=headers | {"Allow": allowed})
    return problem_response(scope, problem)


async def _on_database_failure(request: Request, problem: Exception) -> Response:
    unreachable = request.scope["app"].state.change_feed.unreachable  # then one line is enough
    facts = {"request_id": request.scope.get(REQUEST_ID), "reason": type(problem).__name__}
    log.error("the database failed", exc_info=None if unreachable else problem, extra=facts)
    detail = "the database cannot do this at the moment; try again shortly"
    return problem_response(request.scope, Unavailable(detail))


async def _on_unstorable(request: Request, problem: Exception) -> Response:
    log.warning("unstorable value", exc_info=problem, extra={"request_id": request.scope.get(REQUEST_ID)})
    return problem_response(request.scope, Invalid("a text or number in the request cannot be stored"))


def field_error(error: Mapping[str, Any]) -> FieldError:
    """Return one of Pydantic's errors in the wording of all others."""
    place, kind, message = error["loc"], error["type"], str(error["msg"])
    if kind == "json_invalid":
        where = f" at character {place[1]}" if len(place) > 1 and isinstance(place[1], int) else ""
        return FieldError("body", "", f"must be JSON; {error.get('ctx', {}).get('error', message)}{where}")
    if kind == "missing":
        return FieldError(".".join(map(str, place)), "", "is required")
    reason = "is not known here" if kind == "extra_forbidden" else message.removeprefix("Value error, ")
    reason = reason.rpartition(" is refused; ")[2]  # what is refused is in another field
    reason = SHOULD.sub("must ", reason.removeprefix("it "))
    return FieldError(".".join(map(str, place)), _shown(error.get("input")), reason)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return shortened(value)
    try:
        return json.dumps(value) if value is None or isinstance(value, bool | int | float) else reprlib.repr(value)
    except ValueError:  # Python refuses to write very long whole numbers
        return "a very long number"
