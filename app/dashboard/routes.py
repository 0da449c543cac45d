"""The page and its files over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from app.core.errors import NotFound
from app.dashboard.files import page_files
from app.http.dependencies import SettingsDep
from app.settings import Switch

router = APIRouter(include_in_schema=False)

# Scripts and styles are files of ours and nothing else; trusted types keep text from ever becoming markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
FOR_GOOD = "public, max-age=31536000, immutable"


@router.get("/")
async def get_page(request: Request, settings: SettingsDep) -> Response:
    """Return the operators' page; what it shows it asks for with the key of whoever signs in."""
    files, keys_needed = page_files(), settings.auth is Switch.ON
    tag = f'"{files.digest}-{"keys" if keys_needed else "open"}"'
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "ETag": tag}
    if _is_known(request, tag):
        return Response(status_code=304, headers=headers)
    return HTMLResponse(files.page(keys_needed=keys_needed), headers=headers)


@router.get("/dashboard/{digest}/{name:path}")
async def get_file(digest: str, name: str, request: Request) -> Response:
    """Return a file of the page; under its digest it never changes."""
    files = page_files()
    if digest != files.digest or name not in files.contents:
        raise NotFound(f"there is no {name!r} here")
    headers = {"Cache-Control": FOR_GOOD, "ETag": f'"{digest}"'}
    if _is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(files.contents[name], media_type=files.media_type(name), headers=headers)


def _is_known(request: Request, tag: str) -> bool:
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    return tag in known
