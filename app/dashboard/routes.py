"""The operators' page and its files over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from app.core.errors import NotFound
from app.http.dependencies import SettingsDep
from app.http.requests import is_unchanged
from app.settings import Switch

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Scripts and styles are files of the page and nothing else; trusted types keep text from becoming markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
FOR_GOOD = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class PageFiles:
    """The files of the page; ``digest`` changes with any of them, so that browsers may cache them without a limit."""

    digest: str
    template: str
    contents: dict[str, bytes]

    def page(self, *, keys_needed: bool) -> str:
        """Return the page itself; its addresses are relative, so that it works below any --root-path."""
        folder = f"dashboard/{self.digest}"
        modules = sorted(name for name in self.contents if name.endswith(".js"))
        # Without preloads a browser would find one module after another, one round trip each.
        preloads = "\n".join(f'<link rel="modulepreload" href="{folder}/{name}">' for name in modules)
        text = self.template
        for name, value in {"folder": folder, "preloads": preloads, "keys": "on" if keys_needed else "off"}.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        return text


@cache
def page_files() -> PageFiles:
    """Read the files."""
    paths = [path for path in sorted(STATIC.rglob("*")) if path.suffix in MEDIA_TYPES]
    contents = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in paths}
    template = (STATIC / "index.html").read_text(encoding="utf-8")
    digests = [sha256(part).digest() for part in (template.encode(), *contents.values())]
    return PageFiles(sha256(b"".join(digests)).hexdigest()[:16], template, contents)


@router.get("/")
async def get_page(request: Request, settings: SettingsDep) -> Response:
    """Return the operators' page, which reads everything with the key of whoever signs in."""
    files, keys_needed = page_files(), settings.auth is Switch.ON
    tag = f'"{files.digest}-{"keys" if keys_needed else "open"}"'
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "ETag": tag}
    if is_unchanged(request, tag):
        return Response(status_code=304, headers=headers)
    return HTMLResponse(files.page(keys_needed=keys_needed), headers=headers)


@router.get("/dashboard/{digest}/{name:path}")
async def get_file(digest: str, name: str, request: Request) -> Response:
    """Return a file of the page; under its digest it never changes."""
    files = page_files()
    if digest != files.digest or name not in files.contents:
        raise NotFound(f"there is no {name!r} here")
    headers = {"Cache-Control": FOR_GOOD, "ETag": f'"{digest}"'}
    if is_unchanged(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(files.contents[name], media_type=MEDIA_TYPES[Path(name).suffix], headers=headers)
