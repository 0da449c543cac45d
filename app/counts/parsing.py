"""Parse posted counts, in JSON, JSON lines or CSV; a bad row is refused by its place and its field."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, FailFast, Field, Strict, TypeAdapter, ValidationError, with_config
from pydantic_core import ErrorDetails, from_json
from typing_extensions import TypedDict

from app.core.errors import REQUIRED, FieldError, Invalid, TooLarge, UnsupportedMediaType, shortened, shown_value
from app.counts.importers.record import (
    COUNT_RULE,
    LARGEST_COUNT,
    LINK_ID_RULE,
    QUALITY_RULE,
    SLOT_RULE,
)
from app.counts.schemas import RefusedCount
from app.http.csv import CSV, from_cell
from app.http.requests import JSON
from app.links.schemas import LINK_ID_PATTERN

JSON_LINES = "application/x-ndjson"
MEDIA_TYPES = {
    JSON: JSON,
    JSON_LINES: JSON_LINES,
    "application/jsonl": JSON_LINES,
    "application/json-lines": JSON_LINES,
    CSV: CSV,
}
COLUMNS = ("link_id", "slot_start", "count")
MOST_COMMAS = 5  # of a row; a good one has three, and one after it
MOST_KEYS = 20  # of a row; of more only the number is reported, because each would be an error of a kilobyte
ROW = "row"  # the field of a count that is refused as a whole
ROW_RULE = "must be an object of link_id, slot_start, count and perhaps quality"
RULES = {"link_id": LINK_ID_RULE, "slot_start": SLOT_RULE, "count": COUNT_RULE, "quality": QUALITY_RULE}


@with_config(ConfigDict(extra="forbid"))
class PostedCount(TypedDict):
    """One count: vehicles on a link in the slot that starts then."""

    link_id: Annotated[str, Field(pattern=LINK_ID_PATTERN)]
    slot_start: Annotated[
        str,
        Field(
            max_length=40,
            description="Start of the slot, RFC 3339 with an offset",
            examples=["2025-09-01T07:15:00Z"],
            json_schema_extra={"format": "date-time"},
        ),
    ]
    count: Annotated[int, Strict(), Field(ge=0, le=LARGEST_COUNT, description="Vehicles in the slot")]
    quality: NotRequired[Literal["observed", "imputed", "suspect"]]


_ROW = TypeAdapter(PostedCount)
_ROWS = TypeAdapter(Annotated[list[PostedCount], FailFast()])


def parse_counts(
    body: bytes, media_type: str, most: int, *, partial: bool
) -> tuple[dict[int, PostedCount], list[RefusedCount]]:
    """Return the counts of a body by their places in it, and those that are refused.

    Without ``partial`` a bad row refuses the whole body.
    """
    known_type = MEDIA_TYPES.get(media_type.split(";")[0].strip().lower() or JSON)
    if known_type is None:
        raise UnsupportedMediaType.named(media_type, *sorted(MEDIA_TYPES))
    if body.count(b",") > MOST_COMMAS * (most + 1):  # whatever else they separate, each takes a hundred bytes when read
        raise TooLarge(f"the body has more values than {most} counts have; send fewer at a time")
    rows = _rows(body, known_type, most)
    _check_size(len(rows), most)
    if all(isinstance(row, dict) and len(row) <= MOST_KEYS for row in rows):
        with suppress(ValidationError):  # all at once takes a third of the time; a bad row is reported below
            return dict(enumerate(_ROWS.validate_python(rows))), []
    counts: dict[int, PostedCount] = {}
    refused: list[RefusedCount] = []
    for place, row in enumerate(rows):
        if isinstance(row, dict) and len(row) > MOST_KEYS:
            refused.append(refused_count(place, {}, ROW, f"an object of {len(row)} keys", ROW_RULE))
            continue
        try:
            counts[place] = _ROW.validate_python(_with_whole_count(row))
        except ValidationError as problem:
            refused.append(_refused(place, row, problem.errors()[0]))
    if refused and not partial:
        raise refused_batch(refused, len(rows))
    return counts, refused


def batch_schema() -> dict[str, Any]:
    """Return the JSON schema of a batch, for the documentation: FastAPI does not parse this body."""
    return {
        "title": "PostedCounts",
        "type": "object",
        "required": ["counts"],
        "additionalProperties": False,
        "properties": {"counts": {"type": "array", "items": _ROW.json_schema()}},
    }


def refused_count(place: int, row: Any, field: str, value: object, rule: str) -> RefusedCount:
    """Return the report of a row that is refused for one of its fields."""
    fields = row if isinstance(row, dict) else {}
    link_id, slot_start = (shortened(str(fields.get(name, ""))) for name in ("link_id", "slot_start"))
    shown = shortened(shown_value(value))
    return RefusedCount(index=place, link_id=link_id, slot_start=slot_start, field=field, value=shown, reason=rule)


def refused_batch(refused: Sequence[RefusedCount], n: int) -> Invalid:
    """Return the problem that states why a batch was not stored."""
    errors = [
        FieldError(f"counts.{one.index}" + (f".{one.field}" if one.field != ROW else ""), one.value, one.reason)
        for one in refused[:100]
    ]
    first = errors[0]
    return Invalid(
        f"{len(refused)} of {n} counts are refused, so none was stored; the first: {first.field}={first.value!r}, "
        f"which {first.reason}",
        errors,
    )


def _refused(place: int, row: Any, error: ErrorDetails) -> RefusedCount:
    field = str(error["loc"][0]) if error["loc"] else ROW
    value = error["input"]
    rule = RULES.get(field, ROW_RULE)
    if error["type"] == "missing":
        value, rule = "", f"is required and {rule}"
    if error["type"] == "extra_forbidden":
        rule = f"is not known here; known are {', '.join(PostedCount.__annotations__)}"
    return refused_count(place, row, field, value, rule)


def _rows(body: bytes, media_type: str, most: int) -> list[Any]:
    """Read the rows of a body without checking them."""
    try:
        if media_type == JSON:
            return _rows_of(from_json(body, allow_inf_nan=False))
        if media_type == JSON_LINES:
            lines = {number: line for number, line in enumerate(body.splitlines(), 1) if line.strip()}
            _check_size(len(lines), most)
            return [_json_row(number, line) for number, line in lines.items()]
        return _csv_rows(body.decode("utf-8-sig"), most)
    except ValueError as problem:
        raise Invalid.field("body", "", f"must be {media_type}: {problem}") from None


def _json_row(number: int, line: bytes) -> Any:
    try:
        return from_json(line, allow_inf_nan=False)
    except ValueError as problem:
        reason = str(problem).replace("at line 1 column", f"at line {number} column")
        raise ValueError(reason) from None


def _rows_of(document: Any) -> list[Any]:
    if not isinstance(document, dict):
        raise Invalid.field("body", shown_value(document), 'must be an object: {"counts": [ … ]}')
    if unknown := [name for name in document if name != "counts"]:
        raise Invalid.field(
            shortened(unknown[0]), shown_value(document[unknown[0]]), "is not known here; known is counts"
        )
    if "counts" not in document:
        raise Invalid("counts is required", [FieldError("counts", "", REQUIRED)])
    if not isinstance(document["counts"], list):
        raise Invalid.field("counts", shown_value(document["counts"]), "must be a list")
    return document["counts"]


def _with_whole_count(row: Any) -> Any:
    """Return a row whose count is an int if it is a whole number such as 180.0, which is an integer in JSON Schema."""
    count = row.get("count") if isinstance(row, dict) else None
    return row | {"count": int(count)} if isinstance(count, float) and count.is_integer() else row


def _csv_rows(text: str, most: int) -> list[dict[str, Any]]:
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if (columns := len(rows.fieldnames or ())) > MOST_KEYS:  # of which every row would have each
            raise ValueError(
                f"its first line has {columns} columns; known are {', '.join(PostedCount.__annotations__)}"
            )
        if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
            raise ValueError(f"its first line must name the columns {', '.join(COLUMNS)}; {missing[0]} is missing")
        read = [_csv_row(row) for row in islice(rows, most + 1)]
        _check_size(len(read) + sum(map(bool, rows.reader)), most)
        return read
    except csv.Error as problem:
        raise ValueError(f"line {rows.line_num}: {problem}") from None


def _csv_row(row: dict[str | Any, Any]) -> dict[str, Any]:
    """Return a row as JSON would have it: counts as numbers, an empty quality left out."""
    fields = {name: value for name, value in row.items() if name is not None and value is not None}
    if None in row:
        fields["column beyond the header"] = row[None]
    if isinstance(link_id := fields.get("link_id"), str):
        fields["link_id"] = from_cell(link_id)
    count = fields.get("count")
    if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) <= 10:
        fields["count"] = int(count)
    if not fields.get("quality"):
        fields.pop("quality", None)
    return fields


def _check_size(n: int, most: int) -> None:
    if n > most:
        raise TooLarge(f"{n} counts in one batch are refused; at most {most} are accepted; send several batches")
