"""Which exception becomes which problem."""

from __future__ import annotations

import json
import logging
import re
import reprlib
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy import exc as database_errors
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.core.database import UNREACHABLE
from app.core.errors import MOST_ERRORS, FieldError, Invalid, Problem, Unavailable
from app.http.problems import REQUEST_ID, problem_response, response_to
from app.http.route_paths import MethodsByPath

log = logging.getLogger("flowcast.problems")

LONGEST_VALUE = 100
SHOULD = re.compile(r"^\w+ should ")  # Pydantic: "String should …", "Input should …"
# What cannot be stored for a while, as opposed to what can never be.
# Where another request was faster, integrity is hurt: asked again, ours meets what is there now.
PASSING = (*UNREACHABLE, database_errors.IntegrityError)
UNSTORABLE = (database_errors.DataError, OverflowError, UnicodeEncodeError)


def add_problem_handlers(app: FastAPI) -> None:
    """Make an app answer every error with a problem; RequestMiddleware answers unexpected exceptions."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    for passing in PASSING:
        app.add_exception_handler(passing, _on_database_away)
    for unstorable in UNSTORABLE:
        app.add_exception_handler(unstorable, _on_unstorable)


async def _on_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return response_to(request.scope, problem)


async def _on_invalid_request(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    found = problem.errors()
    errors = [field_error(error) for error in found[:MOST_ERRORS]]
    first = errors[0] if errors else FieldError("body", "", "must follow the schema")
    detail = f"{first.field}={first.value!r} is refused; it {first.reason}"
    if len(found) > 1:
        detail = f"{len(found)} values are refused; the first: {detail}"
    return response_to(request.scope, Invalid(detail, errors))


async def _on_http_exception(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    scope, status, headers = request.scope, problem.status_code, dict(problem.headers or {})
    if isinstance(problem.__cause__, Problem):  # raised by BodyLimitMiddleware while FastAPI was reading the body
        return response_to(scope, problem.__cause__)
    if status == 400:  # FastAPI's word for a body it cannot read
        return response_to(scope, Invalid.field("body", "", "must be what its Content-Type says, in UTF-8"))
    if status == 404:
        return problem_response(scope, 404, "Not found", f"there is nothing at {scope['path']}", (), headers)
    if status == 405:
        methods: MethodsByPath = scope["app"].state.methods
        allowed = ", ".join(sorted(methods.of(scope))) or headers.get("Allow", "")
        detail = f"{scope['method']} is not possible here; {allowed} is"
        return problem_response(scope, 405, "Method not allowed", detail, (), headers | {"Allow": allowed})
    return problem_response(scope, status, str(problem.detail), str(problem.detail), (), headers)


async def _on_database_away(request: Request, problem: Exception) -> Response:
    away = request.scope["app"].state.change_feed.unreachable  # then one line is enough
    facts = {"request_id": request.scope.get(REQUEST_ID), "reason": type(problem).__name__}
    log.error("the database failed", exc_info=None if away else problem, extra=facts)
    return response_to(request.scope, Unavailable("the database cannot do this at the moment; try again shortly"))


async def _on_unstorable(request: Request, problem: Exception) -> Response:
    log.warning("unstorable value", exc_info=problem, extra={"request_id": request.scope.get(REQUEST_ID)})
    return response_to(request.scope, Invalid("a text or number in the request cannot be stored"))


def field_error(error: Mapping[str, Any]) -> FieldError:
    """Put one of Pydantic's errors into our words."""
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
        return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"
    try:
        return json.dumps(value) if value is None or isinstance(value, bool | int | float) else reprlib.repr(value)
    except ValueError:  # Python refuses to write very long whole numbers
        return "a very long number"
