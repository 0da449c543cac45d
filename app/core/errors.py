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

import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from typing import Any, NamedTuple

MOST_ERRORS = 100
LONGEST_VALUE = 100
RULES: dict[str, str] = {}  # of regular expressions, in words
CURSOR_RULE = "must be next_cursor of the page before, unchanged"
NO_NUL_RULE = "must not contain the character NUL"
REQUIRED = "is required"
REASONS = {  # by Pydantic's type of an error, where its own words are not those of JSON
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "extra_forbidden": "is not known here",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
    "string_type": "must be a string",
    "tuple_type": "must be a list",
}
SHOULD = re.compile(r"^\w+ should ")  # Pydantic: "String should …", "Input should …"


def worded(pattern: str, rule: str) -> str:
    """Return a regular expression after storing its rule in words, which problems show instead."""
    RULES[pattern] = rule
    return pattern


def shortened(text: str, most: int = LONGEST_VALUE) -> str:
    """Shorten a text that a caller sent for a message."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shown_value(value: object) -> str:
    """Return a value of a request as a problem shows it: shortened, and null, true and false as JSON has them."""
    if isinstance(value, str):
        return shortened(value)
    try:
        return json.dumps(value) if value is None or isinstance(value, bool | int | float) else reprlib.repr(value)
    except ValueError:  # Python refuses to write very long whole numbers
        return "a very long number"


class FieldError(NamedTuple):
    """One value that breaks a rule: where it is, what it is and what it should be."""

    field: str
    value: str
    reason: str


class ProblemType(Enum):
    """The types of problems: the last part of their URI, their status, and when they occur."""

    BAD_REQUEST = "bad-request", 400, "The request is not HTTP"
    UNAUTHORIZED = "unauthorized", 401, "The key is missing, unknown, expired or revoked"
    FORBIDDEN = "forbidden", 403, "The key lacks the scope that the call needs"
    NOT_FOUND = "not-found", 404, "What the path or a field names does not exist"
    METHOD_NOT_ALLOWED = "method-not-allowed", 405, "The path does not have the method"
    NOT_ACCEPTABLE = "not-acceptable", 406, "The call returns none of the media types in `Accept`"
    TOO_SLOW = "too-slow", 408, "The request or its body took too long to arrive"
    LINK_IN_USE = "link-in-use", 409, "The link has counts or models that the change would delete or invalidate"
    DUPLICATE_LINK = "duplicate-link", 409, "A batch has a link more than once"
    INVALID_UPSTREAM = "invalid-upstream", 409, "`upstream` names a link that does not exist, or the link itself"
    LINK_CHANGED = "link-changed", 409, "A link of the file was created, deleted or changed during the import"
    NO_COUNTS = "no-counts", 409, "The link has no counts"
    TOO_LITTLE_HISTORY = "too-little-history", 409, "The link has no counts in the weeks before the forecast"
    AFTER_NEWEST_COUNT = "after-newest-count", 409, "`as_of` lies after the newest count of the link"
    NO_LINKS = "no-links", 409, "There are no links to retrain"
    RUN_IN_PROGRESS = "run-in-progress", 409, "All links of the request are in retrain runs"
    RUN_FINISHED = "run-finished", 409, "The retrain run is over"
    NOT_REFRESHABLE = "not-refreshable", 409, "A link has no active `NETWORK` model, or there is none at all"
    NO_ACTIVE_MODEL = "no-active-model", 409, "The link has no active model"
    ZONE_MISMATCH = "zone-mismatch", 409, "The model was trained in another zone than that of the link"
    DAMAGED_ARTIFACT = "damaged-artifact", 409, "The artifact of the model is missing or damaged"
    STORE_UNREACHABLE = "store-unreachable", 409, "The model store is unreachable"
    KEY_REPLACED = "key-replaced", 409, "The key to replace was replaced or revoked already"
    LAST_ADMIN_KEY = "last-admin-key", 409, "No other valid key has the scope `admin`"
    WEBHOOK_HOST = "webhook-host", 409, "`FLOWCAST_WEBHOOK_HOSTS` does not allow the host of the URL"
    WEBHOOK_LIMIT = "webhook-limit", 409, "There are 100 webhooks"
    TOO_LARGE = "too-large", 413, "A body or a batch is past its limit"
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type", 415, "The call does not read the media type or encoding"
    INVALID = "invalid", 422, "A value breaks a rule"
    TOO_MANY_REQUESTS = "too-many-requests", 429, "The key, or the address with wrong keys, is past its limit"
    HEAD_TOO_LARGE = "head-too-large", 431, "The request line and headers are too long"
    INTERNAL = "internal", 500, "An unexpected failure"
    UNAVAILABLE = "unavailable", 503, "The database is unreachable or full"
    OVERLOADED = "overloaded", 503, "Too many requests are waiting; nothing of this one was done"
    FORECAST_FAILED = "forecast-failed", 503, "Computing the forecast failed"

    def __init__(self, slug: str, status: int, when: str) -> None:
        self.slug = slug
        self.status = status
        self.when = when

    @property
    def uri(self) -> str:
        """The ``type`` of a problem: a reference, relative to the service."""
        return f"/problems/{self.slug}"


class Problem(Exception):
    """An error that is reported to the caller."""

    problem_type = ProblemType.INTERNAL
    title = "Something went wrong"

    def __init__(
        self,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: dict[str, str] | None = None,
        problem_type: ProblemType | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = list(errors)
        self.headers = headers or {}
        if problem_type is not None:
            self.problem_type = problem_type

    @property
    def status(self) -> int:
        """The status of the response."""
        return self.problem_type.status

    @classmethod
    def with_status(cls, status: int, detail: str, headers: dict[str, str] | None = None) -> Problem:
        """Return a problem with a status that has no class of its own."""
        found = next((one for one in ProblemType if one.status == status), ProblemType.INTERNAL)
        problem = cls(detail, headers=headers, problem_type=found)
        problem.title = HTTPStatus(found.status).phrase
        return problem


class Unauthorized(Problem):
    """No key, or a wrong one."""

    problem_type = ProblemType.UNAUTHORIZED
    title = "A key is needed"


class Forbidden(Problem):
    """A key without the scope."""

    problem_type = ProblemType.FORBIDDEN
    title = "The key may not do this"


class NotFound(Problem):
    """Something that does not exist."""

    problem_type = ProblemType.NOT_FOUND
    title = "Not found"


class MethodNotAllowed(Problem):
    """A method that the path does not have."""

    problem_type = ProblemType.METHOD_NOT_ALLOWED
    title = "Method not allowed"


class NotAcceptable(Problem):
    """An answer in none of the media types that the caller accepts."""

    problem_type = ProblemType.NOT_ACCEPTABLE
    title = "Not acceptable"


class Conflict(Problem):
    """Something that is not possible in the present state."""

    title = "Not possible in the present state"

    def __init__(self, problem_type: ProblemType, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail, errors, problem_type=problem_type)


class TooLarge(Problem):
    """A body or a batch past its limit."""

    problem_type = ProblemType.TOO_LARGE
    title = "Too large"


class UnsupportedMediaType(Problem):
    """A body of a media type that is not supported."""

    problem_type = ProblemType.UNSUPPORTED_MEDIA_TYPE
    title = "Unsupported media type"

    @classmethod
    def named(cls, media_type: str, *known: str) -> UnsupportedMediaType:
        """Refuse the media type of a body; name those that the call reads."""
        rule = f"must be {known[0]}" if len(known) == 1 else f"must be one of {', '.join(known)}"
        shown = shortened(media_type)
        return cls(f"Content-Type={shown!r} is refused; it {rule}", [FieldError("Content-Type", shown, rule)])


class Invalid(Problem):
    """A value that breaks a rule."""

    problem_type = ProblemType.INVALID
    title = "A value breaks a rule"

    @classmethod
    def field(cls, name: str, value: object, rule: str) -> Invalid:
        """Refuse one field by name, value and rule."""
        shown = shortened(str(value))
        return cls(f"{name}={shown!r} is refused; it {rule}", [FieldError(name, shown, rule)])


class TooManyRequests(Problem):
    """More requests than the limit."""

    problem_type = ProblemType.TOO_MANY_REQUESTS
    title = "Too many requests"


class Unavailable(Problem):
    """The database or another part is unreachable."""

    problem_type = ProblemType.UNAVAILABLE
    title = "Unavailable for now"


def broken_rule(error: Mapping[str, Any]) -> str:
    """Return the rule that one of Pydantic's errors is about, in the words of all other errors."""
    kind, message = error["type"], str(error["msg"])
    if kind == "string_pattern_mismatch":
        return RULES[error["ctx"]["pattern"]]
    reason = REASONS.get(kind) or message.removeprefix("Value error, ").partition(" after validation")[0]
    reason = reason.rpartition(" is refused; ")[2]  # what is refused is in another field
    return SHOULD.sub("must ", reason.removeprefix("it "))


def no_link(link_id: str, field: str = "link_id") -> NotFound:
    """Return the error that a link does not exist, with the field that names it."""
    return NotFound(f"link {link_id!r} does not exist", [FieldError(field, link_id, "must name a link that exists")])
