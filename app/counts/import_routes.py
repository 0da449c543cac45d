"""``POST /v1/import``: counts from a file of any known layout."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import IO, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from app.core.errors import Invalid, ProblemType
from app.core.slots import SlotGrid
from app.counts.import_file import import_file
from app.counts.importers.columns import MAP_EXAMPLE, ONE_LINK_RULE, Columns
from app.counts.importers.reader import AUTO, CountReader, layouts
from app.counts.importers.record import CountFileError
from app.counts.importers.unpacking import printable
from app.counts.ingest import IngestContext
from app.counts.schemas import ImportedFile
from app.http.problems import problem_responses
from app.http.shedding import Shedding
from app.keys.authentication import IngestKey
from app.keys.tables import Scope
from app.links.schemas import LINK_ID_PATTERN, SLOT_LENGTHS, known_zone, slot_length

router = APIRouter(prefix="/v1", tags=["counts"])

EXAMPLE = "link_id,slot_start,count\nhigh-street,2025-09-15T08:00:00+02:00,87\n"
MEDIA_TYPES = ("application/octet-stream", "text/csv", "application/x-ndjson", "application/gzip", "application/zip")
MULTIPART = "multipart/form-data"
FORM_RULE = "must be a form with the file as its only field, such as curl --form file=@counts.csv sends"


def _known_layout(name: str) -> str:
    if name != AUTO and name not in layouts():
        raise ValueError(f"it must be {AUTO} or one of {', '.join(layouts())}")
    return name


def _known_map(text: str | None) -> str | None:
    Columns.parse(text)
    return text


LayoutQuery = Annotated[
    str,
    Query(
        alias="format",
        description="Layout of the file; `auto` recognises it by the first line",
        json_schema_extra={"enum": [AUTO, *layouts()]},
    ),
    AfterValidator(_known_layout),
]
Zone = Annotated[
    Annotated[str, AfterValidator(known_zone)] | None,
    Query(
        description="IANA time zone of local times in the file, and of links that it creates; left out, that of the "
        "layout, or else `FLOWCAST_DEFAULT_ZONE` for new links",
        json_schema_extra={"format": "iana-time-zone"},
        examples=["Europe/Berlin"],
    ),
]
SlotMinutes = Annotated[
    int,
    Query(
        description="Slot length, in minutes, of links that do not exist yet",
        json_schema_extra={"enum": list(SLOT_LENGTHS)},
    ),
    AfterValidator(slot_length),
]
ColumnMap = Annotated[
    str | None,
    Query(
        alias="map",
        description="Columns of a CSV file, or keys of JSON rows, by other names",
        json_schema_extra={"format": "column-map"},
        examples=[MAP_EXAMPLE],
    ),
    AfterValidator(_known_map),
]
OnlyLink = Annotated[
    str | None,
    Query(
        alias="link",
        pattern=LINK_ID_PATTERN,
        description="Id of the only link of a file without a link column",
        examples=["Ba"],
    ),
]
DryRun = Annotated[bool, Query(description="Report what the import would do, and store nothing")]
CreateLinks = Annotated[bool, Query(description="Create the links that do not exist; needs the scope `admin`, too")]

_FILE = {"type": "string", "format": "count-file", "description": "The file as it is, also packed with gzip or zip"}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file itself, under any media type, or a form with the file as a field.",
        "content": {media_type: {"schema": _FILE} for media_type in MEDIA_TYPES} | {MULTIPART: {"schema": _FORM}},
    }
}
_BODY["requestBody"]["content"]["text/csv"]["example"] = EXAMPLE


@router.post(
    "/import",
    summary="Import a file of counts",
    responses=problem_responses(ProblemType.LINK_CHANGED, ProblemType.TOO_LARGE),
    openapi_extra=_BODY,
)
async def import_counts(
    request: Request,
    caller: IngestKey,
    layout: LayoutQuery = AUTO,
    dry_run: DryRun = False,
    create_links: CreateLinks = False,
    zone: Zone = None,
    slot_minutes: SlotMinutes = 15,
    column_map: ColumnMap = None,
    link: OnlyLink = None,
) -> ImportedFile:
    """Import a file of any known layout, sent as the body or in a form, and report what became of every value in it.

    Good counts are stored, all of them in one transaction, and the others are reported; a file that cannot be
    read to its end stores nothing. Of several counts for one slot the last one in the file is kept. The slot length
    of the file is detected: rows shorter than a link's slots are summed, and a file whose rows are longer or off the
    grid is refused whole.
    """
    if create_links:
        caller.require_scope(Scope.ADMIN)
    try:
        columns = Columns.parse(column_map, link)
    except ValueError:  # each alone was checked above
        raise Invalid.field("link", link, ONE_LINK_RULE) from None
    context: IngestContext = request.app.state.ingest_context
    shedding: Shedding = request.app.state.shedding
    options: dict[str, Any] = {"layout": layout, "zone": zone, "grid": SlotGrid(slot_minutes), "columns": columns}
    with shedding.place("import"):
        async with _received(request) as (file, name):
            options["name"] = name
            work = partial(_import, context, file, options, create_links=create_links, dry_run=dry_run)
            return await shedding.run_in_lane("import", work)


@asynccontextmanager
async def _received(request: Request) -> AsyncIterator[tuple[IO[bytes], str]]:
    """Receive the file onto disk, as the body or as the only field of a form; return it and its name for messages."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != MULTIPART:
        with tempfile.TemporaryFile() as file:
            async for part in request.stream():  # app.server.bodies bounds its size
                await run_in_threadpool(file.write, part)
            yield file, "body"
        return
    try:
        form = await request.form(max_files=1, max_fields=1)
    except HTTPException as problem:
        raise Invalid.field("body", "", f"{FORM_RULE}: {problem.detail}") from None
    try:
        fields = form.multi_items()
        if len(fields) != 1 or not isinstance(fields[0][1], UploadFile):
            raise Invalid.field("body", ", ".join(name for name, _ in fields), FORM_RULE)
        yield fields[0][1].file, printable(fields[0][1].filename or "body")
    finally:
        await form.close()


def _import(
    context: IngestContext, file: IO[bytes], options: dict[str, Any], *, create_links: bool, dry_run: bool
) -> ImportedFile:
    file.seek(0)
    try:
        most = context.settings.max_unpacked_megabytes << 20
        with CountReader(file, most_unpacked=most, **options) as reader:
            return import_file(context, reader, create_links=create_links, dry_run=dry_run)
    except CountFileError as problem:
        raise Invalid.field("body", "", f"must be a file of counts: {problem}") from None
