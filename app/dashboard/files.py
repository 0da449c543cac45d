"""The files of the page, read once and named by what is in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

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
