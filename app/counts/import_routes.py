"""``POST /v1/import``: counts from a file of any known layout."""

from __future__ import annotations

import io
import tempfile
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool

from app.counts.import_file import import_and_issue
from app.counts.import_schemas import ImportedFile
from app.counts.importers import CountFileError, layouts, open_counts
from app.dependencies import IngestKey, RuntimeDep
from app.exceptions import Invalid
from app.keys.caller import Scope
from app.links.schemas import SLOT_LENGTHS
from app.runtime import Runtime
from app.slots import SlotGrid, zone_named
from app.web.problems import problem_responses
from app.web.shedding import Shedding

router = APIRouter(prefix="/v1", tags=["counts"])

AUTO = "auto"
WRITTEN_AT_ONCE = 1 << 20  # bytes
EXAMPLE = "link_id,slot_start,count\n0970-7,2006-10-02T00:15:00Z,42\n"
MEDIA_TYPES = ("application/octet-stream", "text/csv", "application/x-ndjson", "application/gzip", "application/zip")


def _known_layout(name: str) -> str:
    if name != AUTO and name not in layouts():
        raise ValueError(f"it must be {AUTO} or one of {', '.join(layouts())}")
    return name


def _known_zone(name: str | None) -> str | None:
    if name is not None:
        zone_named(name)
    return name


def _slot_length(minutes: int) -> int:
    return SlotGrid(minutes).slot_minutes


Layout = Annotated[
    str,
    Query(
        alias="format",
        description="Layout of the file; `auto` tells it by the first line",
        json_schema_extra={"enum": [AUTO, *layouts()]},
    ),
    AfterValidator(_known_layout),
]
Zone = Annotated[
    str | None,
    Query(
        description="IANA time zone of local times in the file, and of links that it creates; left out, that of the "
        "layout, or else `FLOWCAST_DEFAULT_ZONE` for new links",
        json_schema_extra={"format": "iana-time-zone"},
        examples=["Australia/Melbourne"],
    ),
    AfterValidator(_known_zone),
]
SlotMinutes = Annotated[
    int,
    Query(description="Length of a slot in minutes", json_schema_extra={"enum": list(SLOT_LENGTHS)}),
    AfterValidator(_slot_length),
]
DryRun = Annotated[bool, Query(description="Tell what the import would do, and store nothing")]
CreateLinks = Annotated[bool, Query(description="Create the links that do not exist; needs the scope `admin`, too")]

_FILE = {"type": "string", "format": "count-file", "description": "The file as it is, also packed with gzip or zip"}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file itself, whatever its media type is said to be.",
        "content": {media_type: {"schema": _FILE} for media_type in MEDIA_TYPES},
    }
}
_BODY["requestBody"]["content"]["text/csv"]["example"] = EXAMPLE


@router.post("/import", summary="Import a file of counts", responses=problem_responses(409, 413), openapi_extra=_BODY)
async def post_import(
    request: Request,
    runtime: RuntimeDep,
    caller: IngestKey,
    layout: Layout = AUTO,
    dry_run: DryRun = False,
    create_links: CreateLinks = False,
    zone: Zone = None,
    slot_minutes: SlotMinutes = 15,
) -> ImportedFile:
    """Import a file of any known layout, sent as the body, and say what became of every value in it.

    Good counts are stored, all of them in one transaction, and the others are reported; a file that cannot be
    read to its end stores nothing. Of several counts for one slot the last one in the file is kept.
    """
    if create_links:
        caller.may(Scope.ADMIN)
    shedding: Shedding = request.app.state.shedding
    with shedding.place("import"), tempfile.TemporaryFile(buffering=0) as file:
        await _save(request, file)
        work = partial(_import, create_links=create_links, dry_run=dry_run)
        return await shedding.apart("import", work, runtime, file, layout, zone, SlotGrid(slot_minutes))


async def _save(request: Request, file: io.FileIO) -> None:
    """Stream the body to disk; the edge bounds its size."""
    waiting = bytearray()
    async for part in request.stream():
        waiting += part
        if len(waiting) >= WRITTEN_AT_ONCE:
            await run_in_threadpool(_write, file, bytes(waiting))
            waiting.clear()
    await run_in_threadpool(_write, file, bytes(waiting))


def _write(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _import(
    runtime: Runtime,
    file: io.FileIO,
    layout: str,
    zone: str | None,
    grid: SlotGrid,
    *,
    create_links: bool,
    dry_run: bool,
) -> ImportedFile:
    file.seek(0)
    try:
        most = runtime.settings.max_unpacked_megabytes << 20
        with open_counts(_named(file), layout=layout, zone=zone, grid=grid, most_unpacked=most) as reader:
            return import_and_issue(runtime, reader, create_links=create_links, dry_run=dry_run)
    except CountFileError as problem:
        raise Invalid.field("body", "", f"must be a file of counts: {problem}") from None


def _named(file: io.FileIO) -> io.FileIO:
    named = io.FileIO(file.fileno(), closefd=False)
    named.name = "body"  # what messages call it
    return named
