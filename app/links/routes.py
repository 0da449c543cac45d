"""Links over REST."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.orm import Session

from app.core.errors import ProblemType
from app.http.dependencies import ReadSession, SettingsDep, SheddingDep, WriteSession
from app.http.problems import problem_responses
from app.http.requests import JSON, chosen_type, next_page
from app.keys.authentication import AdminKey, ReadKey
from app.links.queries import links_after, upstream_ids
from app.links.schemas import (
    COLLECTION_SCHEMA,
    GEOJSON,
    LINK_ID_PATTERN,
    LinkBatch,
    LinkBody,
    LinkCollection,
    LinkIn,
    LinkOut,
    LinkPage,
    LinkPath,
    LinksReport,
    feature_collection,
    parse_links,
)
from app.links.store_links import delete_link as delete_stored_link
from app.links.store_links import link_out, read_link, store_links, update_link


def link_page(session: Session, after: str | None, limit: int) -> LinkPage:
    """Return a page of the links that follow an id."""
    found = links_after(session, after or "", limit + 1)
    page = found[:limit]
    upstream = upstream_ids(session, [link.link_key for link in page])
    return LinkPage(
        links=[link_out(link, upstream) for link in page],
        next_cursor=page[-1].link_id if len(found) > limit else None,
    )


router = APIRouter(prefix="/v1/links", tags=["links"])

MOST = 1000
Cursor = Annotated[str | None, Query(pattern=LINK_ID_PATTERN, description="`next_cursor` of the previous page")]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Links in a page, at most")]
Force = Annotated[
    bool,
    Query(description="Also change the zone of a link with counts or models, which retires the models"),
]
GEOJSON_ANSWER: dict[str, Any] = {"content": {GEOJSON: {"schema": COLLECTION_SCHEMA}}}
COLLECTION = {"$ref": "#/components/schemas/LinkCollection"}
POST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": [{"$ref": "#/components/schemas/LinkBatch"}, COLLECTION]}},
            GEOJSON: {"schema": COLLECTION},
        },
    }
}


async def posted_links(request: Request, shedding: SheddingDep) -> LinkBatch | LinkCollection:
    """Read the links of a body, which may be large: they are parsed in a thread, and one body at a time."""
    body, media_type = await request.body(), request.headers.get("content-type", "")
    return await shedding.run_in_lane("links", parse_links, body, media_type)


PostedLinks = Annotated[LinkBatch | LinkCollection, Depends(posted_links)]


@router.get("", response_model=LinkPage, summary="All links", responses={200: GEOJSON_ANSWER})
def list_links(
    _key: ReadKey,
    session: ReadSession,
    request: Request,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> LinkPage | Response:
    """List links by id, as JSON or as a GeoJSON FeatureCollection (`Accept: application/geo+json`)."""
    page = link_page(session, cursor, limit)
    if chosen_type(request, JSON, GEOJSON) == GEOJSON:
        text = feature_collection(page.links, page.next_cursor)
        return Response(text, media_type=GEOJSON, headers=next_page(request, page.next_cursor))
    return page


@router.post(
    "",
    summary="Store many links",
    responses=problem_responses(ProblemType.LINK_IN_USE, ProblemType.DUPLICATE_LINK, ProblemType.INVALID_UPSTREAM),
    openapi_extra=POST_BODY,
)
def post_links(
    _key: AdminKey, body: PostedLinks, session: WriteSession, settings: SettingsDep, force: Force = False
) -> LinksReport:
    """Create or replace many links, as JSON or as a GeoJSON FeatureCollection: all of them, or none.

    A new link needs a zone unless `FLOWCAST_DEFAULT_ZONE` is set; a link without one keeps the zone that it has.
    """
    return store_links(session, body.links, default_zone=settings.default_zone, force=force, place=body.place)


@router.get("/{link_id}", summary="One link")
def get_link(_key: ReadKey, session: ReadSession, link_id: LinkPath) -> LinkOut:
    """Show a link."""
    return read_link(session, link_id)


@router.put(
    "/{link_id}",
    summary="Store a link",
    responses={
        201: {"model": LinkOut, "description": "The link is new"},
        **problem_responses(ProblemType.LINK_IN_USE, ProblemType.INVALID_UPSTREAM),
    },
)
def put_link(
    _key: AdminKey,
    session: WriteSession,
    settings: SettingsDep,
    link_id: LinkPath,
    body: LinkBody,
    response: Response,
    force: Force = False,
) -> LinkOut:
    """Create a link (201), or replace it as a whole (200); fields left out get defaults, but `zone` stays.

    A new link needs a `zone` unless `FLOWCAST_DEFAULT_ZONE` is set. To change some fields alone, use PATCH.
    """
    link = LinkIn.model_construct(body.model_fields_set | {"link_id"}, link_id=link_id, **dict(body))
    report = store_links(session, [link], default_zone=settings.default_zone, force=force)
    response.status_code = 201 if report.created else 200
    return read_link(session, link_id)


@router.patch(
    "/{link_id}",
    summary="Change a link",
    responses=problem_responses(ProblemType.LINK_IN_USE, ProblemType.INVALID_UPSTREAM),
)
def patch_link(
    _key: AdminKey, session: WriteSession, link_id: LinkPath, body: LinkBody, force: Force = False
) -> LinkOut:
    """Change the fields of a link that are given; the others stay. `null` removes a name, geometry or capacity."""
    update_link(session, link_id, body, force=force)
    return read_link(session, link_id)


@router.delete(
    "/{link_id}",
    status_code=204,
    summary="Delete a link",
    responses=problem_responses(ProblemType.LINK_IN_USE),
)
def delete_link(
    _key: AdminKey,
    session: WriteSession,
    link_id: LinkPath,
    force: Annotated[bool, Query(description="Delete the link's counts, forecasts and models with it")] = False,
) -> Response:
    """Delete a link and all that belongs to it; one that has counts only with `force=true`."""
    delete_stored_link(session, link_id, force=force)
    return Response(status_code=204)  # FastAPI would set a media type although there is no body
