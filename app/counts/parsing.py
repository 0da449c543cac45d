"""Counts as they come over the wire: JSON, JSON lines or CSV, into columns, each bad row refused by name."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    with_config,
)
from pydantic_core import ErrorDetails, from_json
from typing_extensions import TypedDict

from app.core.errors import FieldError, Invalid, TooLarge, UnsupportedMediaType
from app.counts.importers.record import COUNT_RULE, LARGEST_COUNT, LINK_ID_RULE
from app.counts.ingest import Batch, Refused
from app.counts.tables import QUALITIES
from app.http.csv import from_cell
from app.http.requests import WHOLE

JSON, JSON_LINES, CSV = "application/json", "application/x-ndjson", "text/csv"
MEDIA_TYPES = {
    JSON: JSON,
    JSON_LINES: JSON_LINES,
    "application/jsonl": JSON_LINES,
    "application/json-lines": JSON_LINES,
    CSV: CSV,
}

LinkId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,64}$")]
_Digits = Annotated[int, Field(strict=True, ge=0, le=LARGEST_COUNT)]
# Also 42.0, as some languages write 42; tried second, for it is slower.
Count = Annotated[
    _Digits | Annotated[int, Field(ge=0, le=LARGEST_COUNT), WHOLE],
    Field(union_mode="left_to_right", description="Vehicles in the slot"),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": LARGEST_COUNT, "description": "Vehicles in the slot"}),
]
QUALITY_PLACES = {quality: place for place, quality in enumerate(QUALITIES)}
COLUMNS = ("link_id", "slot_start", "count")
MOST_COMMAS = 5  # of a row; a sound one has three, and one after it
MOST_KEYS = 20  # of a row; of more only the number is reported
ROW_RULE = "must be an object of link_id, slot_start, count and perhaps quality"
RULES = {
    "link_id": LINK_ID_RULE,
    "count": COUNT_RULE,
    "quality": f"must be one of {', '.join(QUALITIES)}",
    "slot_start": "must be a time as RFC 3339 writes it, such as 2006-10-02T10:15:00+10:00",
}


@with_config(ConfigDict(extra="forbid"))
class PostedCount(TypedDict):
    """One count: vehicles on a link in the slot that starts then."""

    link_id: LinkId
    slot_start: Annotated[
        str,
        Field(
            max_length=40, description="Start of the slot, RFC 3339 with an offset", examples=["2025-09-01T07:15:00Z"]
        ),
    ]
    count: Count
    quality: NotRequired[Literal["observed", "imputed", "suspect"]]


@with_config(ConfigDict(extra="forbid"))
class PostedCounts(TypedDict):
    """A batch of counts, over any number of links."""

    counts: list[PostedCount]


# Unknown keys pass here, and only their number is reported: as errors each would take a kilobyte.
@with_config(ConfigDict(extra="allow"))
class _PlainCount(TypedDict):
    link_id: str  # that it is a link's is checked once a link
    slot_start: str  # that it is a time, once a time
    count: _Digits
    quality: NotRequired[Literal["observed", "imputed", "suspect"]]


@with_config(ConfigDict(extra="allow"))
class _PlainCounts(TypedDict):
    counts: Annotated[list[_PlainCount], FailFast()]


_BATCH = TypeAdapter(_PlainCounts)  # the quick way; what it refuses is read row by row
_ROW = TypeAdapter(PostedCount)


def read_batch(body: bytes, media_type: str, most: int, *, partial: bool) -> tuple[Batch, list[Refused]]:
    """Read a body into columns; a bad row refuses the whole, or with ``partial`` itself."""
    language = MEDIA_TYPES.get(media_type.split(";")[0].strip().lower() or JSON)
    if language is None:
        raise UnsupportedMediaType(
            f"content-type={media_type!r} is refused; it must be one of {', '.join(sorted(set(MEDIA_TYPES)))}"
        )
    if body.count(b",") > MOST_COMMAS * (most + 1):  # whatever else they separate, each takes a hundred bytes when read
        raise TooLarge(f"the body holds more values than {most} counts have; send fewer at a time")
    if language == JSON:
        rows = _quickly(body)
        if rows is not None:
            _check_size(len(rows), most)
            return _columns(rows), []
    plain = _plain_rows(body, language, most)  # row by row, to say which
    _check_size(len(plain), most)
    good, places, refused = [], [], []
    for place, row in enumerate(plain):
        if isinstance(row, dict) and len(row) > MOST_KEYS:
            refused.append(Refused(place, "", "", FieldError("row", f"an object of {len(row)} keys", ROW_RULE)))
            continue
        try:
            good.append(_ROW.validate_python(row))
            places.append(place)
        except ValidationError as problem:
            refused.append(_refused(place, row, problem.errors()[0]))
    if refused and not partial:
        raise refuse_all(refused, len(plain))
    return _columns(good, places if refused else None), refused


def batch_schema() -> dict[str, Any]:
    """Return the JSON schema of a batch, whole: this body is read by hand, for speed."""
    rows = _ROW.json_schema()
    rows["properties"]["slot_start"]["format"] = "date-time"
    return {
        "title": "PostedCounts",
        "type": "object",
        "required": ["counts"],
        "additionalProperties": False,
        "properties": {"counts": {"type": "array", "items": rows}},
    }


def refuse_all(refused: Sequence[Refused], n: int) -> Invalid:
    """Return the problem that states why a batch was not stored."""
    errors = [
        FieldError(f"counts.{one.place}.{one.error.field}", one.error.value, one.error.reason) for one in refused[:100]
    ]
    first = errors[0]
    return Invalid(
        f"{len(refused)} of {n} counts are refused, so none was stored; the first: {first.field}={first.value!r}, "
        f"which {first.reason}",
        errors,
    )


def _quickly(body: bytes) -> list[PostedCount] | None:
    """Read JSON at once; None where something in it is to be refused."""
    try:
        document = _BATCH.validate_json(body)
    except ValidationError:
        return None
    rows: list[PostedCount] = document["counts"]
    more = sum(map(len, rows)) - 3 * len(rows)  # keys beyond those that each row must have
    sound = len(document) == 1 and (not more or more == sum("quality" in row for row in rows))
    return rows if sound else None


def _columns(rows: Sequence[PostedCount], places: Sequence[int] | None = None) -> Batch:
    return Batch(
        [row["link_id"] for row in rows],
        [row["slot_start"] for row in rows],
        [row["count"] for row in rows],
        [QUALITY_PLACES[row["quality"]] if "quality" in row else 0 for row in rows],
        places,
    )


def _plain_rows(body: bytes, language: str, most: int) -> list[Any]:
    """Read rows without checking them yet."""
    try:
        if language == JSON:
            return _rows_of(from_json(body, allow_inf_nan=False))
        if language == JSON_LINES:
            lines = [line for line in body.splitlines() if line.strip()]
            _check_size(len(lines), most)
            return [from_json(line, allow_inf_nan=False) for line in lines]
        return _csv_rows(body.decode("utf-8-sig"), most)
    except ValueError as problem:
        raise Invalid(f"the body cannot be read as {language}: {problem}") from None


def _rows_of(document: Any) -> list[Any]:
    if not isinstance(document, dict) or set(document) != {"counts"} or not isinstance(document["counts"], list):
        shown = sorted(map(str, document))[:5] if isinstance(document, dict) else type(document).__name__
        raise Invalid.field("body", shown, 'must be an object with one key, "counts", that holds a list')
    return document["counts"]


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
    """Return a row as JSON would: counts as numbers, an empty quality left out."""
    given = {name: value for name, value in row.items() if name is not None and value is not None}
    if None in row:
        given["column beyond the header"] = row[None]
    if isinstance(link_id := given.get("link_id"), str):
        given["link_id"] = from_cell(link_id)
    count = given.get("count")
    if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) <= 10:
        given["count"] = int(count)
    if not given.get("quality"):
        given.pop("quality", None)
    return given


def _check_size(n: int, most: int) -> None:
    if n > most:
        raise TooLarge(f"{n} counts in one batch are refused; at most {most} are taken, send them in several")


def _refused(place: int, row: Any, error: ErrorDetails) -> Refused:
    name = str(error["loc"][0]) if error["loc"] else "row"
    value = error["input"] if error["type"] != "missing" else "nothing"
    rule = RULES.get(name, ROW_RULE)
    if error["type"] == "extra_forbidden":
        rule = f"is not known; known are {', '.join(PostedCount.__annotations__)}"
    fields = row if isinstance(row, dict) else {}
    shown = _shown(value)
    return Refused(
        place, _shown(fields.get("link_id", "")), _shown(fields.get("slot_start", "")), FieldError(name, shown, rule)
    )


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"
