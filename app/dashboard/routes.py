"""The page and its files over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from app.core.errors import NotFound
from app.http.dependencies import SettingsDep
from app.settings import Switch

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class PageFiles:
    """What the page is made of; ``digest`` changes with any of it, so that browsers may keep files for good."""

    digest: str
    template: str
    contents: dict[str, bytes]

    def media_type(self, name: str) -> str:
        """Return the media type of a file."""
        return MEDIA_TYPES[Path(name).suffix]

    def page(self, *, keys_needed: bool) -> str:
        """Write the page itself; its addresses are relative, so that it works below any --root-path."""
        folder = f"dashboard/{self.digest}"
        modules = sorted(name for name in self.contents if name.endswith(".js"))
        # Named here, or a browser would find out module by module, one round trip each.
        preloads = "\n".join(f'<link rel="modulepreload" href="{folder}/{name}">' for name in modules)
        filled = {"folder": folder, "preloads": preloads, "keys": "on" if keys_needed else "off"}
        text = self.template
        for name, value in filled.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        return text


@cache
def page_files() -> PageFiles:
    """Read the files."""
    contents = {
        path.relative_to(STATIC).as_posix(): path.read_bytes()
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA_TYPES
    }
    template = (STATIC / PAGE).read_text(encoding="utf-8")
    return PageFiles(_digest([template.encode(), *contents.values()]), template, contents)


def _digest(parts: Iterable[bytes]) -> str:
    digest = sha256()
    for part in parts:
        digest.update(sha256(part).digest())
    return digest.hexdigest()[:16]


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
