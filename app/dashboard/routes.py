"""The operators' page and its files over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from app.core.errors import NotFound
from app.http.dependencies import SettingsDep
from app.http.requests import is_unchanged
from app.settings import Switch

STATIC = Path(__file__).parent / "static"
LEAFLET = "leaflet.js", "leaflet.css"  # of the package that carries it
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Scripts and styles are files of the page and nothing else; trusted types keep text from becoming markup. Leaflet looks
# once whether the browser knows SVG, for which trusted_types.js lets one text pass.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{tiles}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types default"
)
FOR_GOOD = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class PageFiles:
    """The files of the page; ``digest`` changes with any of them, so that browsers may cache them without a limit."""

    digest: str
    template: str
    contents: dict[str, bytes]

    def page(self, **values: str) -> str:
        """Return the page itself; its addresses are relative, so that it works below any --root-path."""
        folder = f"dashboard/{self.digest}"
        modules = sorted(name for name in self.contents if name.endswith(".js"))
        # Without preloads a browser would find one module after another, one round trip each.
        preloads = "\n".join(f'<link rel="modulepreload" href="{folder}/{name}">' for name in modules)
        text = self.template
        for name, value in {"folder": folder, "preloads": preloads}.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        for name, value in values.items():
            text = text.replace(f"{{{{{name}}}}}", escape(value))
        return text


@cache
def page_files() -> PageFiles:
    """Read the files."""
    paths = [path for path in sorted(STATIC.rglob("*")) if path.suffix in MEDIA_TYPES]
    contents = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in paths}
    contents |= {f"leaflet/{name}": (files("xstatic.pkg.leaflet") / "data" / name).read_bytes() for name in LEAFLET}
    template = (STATIC / "index.html").read_text(encoding="utf-8")
    digests = [sha256(part).digest() for part in (template.encode(), *contents.values())]
    return PageFiles(sha256(b"".join(digests)).hexdigest()[:16], template, contents)


@router.get("/")
async def get_page(request: Request, settings: SettingsDep) -> Response:
    """Return the operators' page, which reads everything with the key of whoever signs in."""
    template, attribution = settings.map_tiles, settings.map_attribution
    keys = "on" if settings.auth is Switch.ON else "off"
    text = page_files().page(keys=keys, tiles=template, attribution=attribution)
    tag = f'"{sha256(text.encode()).hexdigest()[:16]}"'
    origin = " " + "/".join(template.split("/", 3)[:3]) if template else ""
    headers = {"Content-Security-Policy": POLICY.format(tiles=origin), "Cache-Control": "no-cache", "ETag": tag}
    if is_unchanged(request, tag):
        return Response(status_code=304, headers=headers)
    return HTMLResponse(text, headers=headers)


@router.get("/dashboard/{digest}/{name:path}")
async def get_file(digest: str, name: str, request: Request) -> Response:
    """Return a file of the page; under its digest it never changes."""
    kept = page_files()
    if digest != kept.digest or name not in kept.contents:
        raise NotFound(f"there is no {name!r} here")
    headers = {"Cache-Control": FOR_GOOD, "ETag": f'"{digest}"'}
    if is_unchanged(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(kept.contents[name], media_type=MEDIA_TYPES[Path(name).suffix], headers=headers)
