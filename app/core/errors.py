"""Every error of a request: one tree, each with its status, rendered as RFC 9457 problems.

::

    Problem
     ├─ Unauthorized          401  no key, or a wrong one
     ├─ Forbidden             403  a key without the scope
     ├─ NotFound              404  something that does not exist
     ├─ MethodNotAllowed      405  a method that the path does not have
     ├─ NotAcceptable         406  an answer in none of the media types that the caller accepts
     ├─ Conflict              409  something that is not possible in the present state
     ├─ TooLarge              413  a body or a batch past its limit
     ├─ UnsupportedMediaType  415  a body of a media type that is not supported
     ├─ Invalid               422  a value that breaks a rule, by name
     ├─ TooManyRequests       429  more requests than the limit
     └─ Unavailable           503  the database is unreachable, or (Overloaded) more requests than can be answered
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

MOST_ERRORS = 100
LONGEST_VALUE = 100
RULES: dict[str, str] = {}  # of regular expressions, in words
CURSOR_RULE = "must be next_cursor of the page before, as it came"
REQUIRED = "is required"
REASONS = {  # by Pydantic's type of an error, where its own words are not those of JSON
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "extra_forbidden": "is not known here",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
    "tuple_type": "must be a list",
}
SHOULD = re.compile(r"^\w+ should ")  # Pydantic: "String should …", "Input should …"


def worded(pattern: str, rule: str) -> str:
    """Return a regular expression after storing its rule in words, which problems show instead."""
    RULES[pattern] = rule
    return pattern


def shortened(text: str) -> str:
    """Return a text that a caller sent as a problem shows it."""
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


class FieldError(NamedTuple):
    """One value that breaks a rule: where it is, what it is and what it should be."""

    field: str
    value: str
    reason: str


class Problem(Exception):
    """An error that is reported to the caller."""

    status = 500
    title = "Something went wrong"
    slug = ""  # the end of its type; empty for that of its status

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = list(errors)
        self.headers = headers or {}

    @classmethod
    def with_status(cls, status: int, detail: str, headers: dict[str, str] | None = None) -> Problem:
        """Return a problem with a status that has no class of its own."""
        problem = cls(detail, headers=headers)
        problem.status, problem.title = status, HTTPStatus(status).phrase
        return problem


class Unauthorized(Problem):
    """No key, or a wrong one."""

    status = 401
    title = "A key is needed"


class Forbidden(Problem):
    """A key without the scope."""

    status = 403
    title = "The key may not do this"


class NotFound(Problem):
    """Something that does not exist."""

    status = 404
    title = "Not found"


class MethodNotAllowed(Problem):
    """A method that the path does not have."""

    status = 405
    title = "Method not allowed"


class NotAcceptable(Problem):
    """An answer in none of the media types that the caller accepts."""

    status = 406
    title = "Not acceptable"


class Conflict(Problem):
    """Something that is not possible in the present state."""

    status = 409
    title = "Not possible in the present state"


class TooLarge(Problem):
    """A body or a batch past its limit."""

    status = 413
    title = "Too large"


class UnsupportedMediaType(Problem):
    """A body of a media type that is not supported."""

    status = 415
    title = "UnsupportedMediaType media type"


class Invalid(Problem):
    """A value that breaks a rule."""

    status = 422
    title = "A value breaks a rule"

    @classmethod
    def field(cls, name: str, value: object, rule: str) -> Invalid:
        """Refuse one field by name, value and rule."""
        shown = shortened(str(value))
        return cls(f"{name}={shown!r} is refused; it {rule}", [FieldError(name, shown, rule)])


class TooManyRequests(Problem):
    """More requests than the limit."""

    status = 429
    title = "Too many requests"


class Unavailable(Problem):
    """The database or another part is unreachable."""

    status = 503
    title = "Unavailable for now"


def broken_rule(error: Mapping[str, Any]) -> str:
    """Return the rule that one of Pydantic's errors is about, in the words of all other errors."""
    kind, message = error["type"], str(error["msg"])
    if kind == "string_pattern_mismatch":
        return RULES[error["ctx"]["pattern"]]
    reason = REASONS.get(kind) or message.removeprefix("Value error, ").partition(" after validation")[0]
    reason = reason.rpartition(" is refused; ")[2]  # what is refused is in another field
    return SHOULD.sub("must ", reason.removeprefix("it "))


def no_link(link_id: str) -> NotFound:
    """Return the error that a link does not exist."""
    return NotFound(
        f"link {link_id!r} does not exist", [FieldError("link_id", link_id, "must name a link that exists")]
    )
