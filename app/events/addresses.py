"""Where webhooks may point to: addresses that whoever runs the service allowed, and none beside them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from app.core.errors import FieldError, NotYet

# Host and port, path and query; neither user info nor a fragment fits in.
URL_PATTERN = (
    r"^https?://([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[1-9][0-9]{0,4})?"
    r"([/?][A-Za-z0-9._~:/?@!$&'()*+,;=%-]*)?$"
)
LONGEST_URL = 2000
USUAL_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """A URL taken apart, once: what was checked is what is connected to."""

    secure: bool
    host: str
    port: int
    target: str  # path and query

    @classmethod
    def of(cls, url: str) -> Address:
        """Take a URL apart that has the pattern."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme == "https", parts.hostname or "", parts.port or USUAL_PORTS[parts.scheme], target)

    def is_allowed(self, hosts: Collection[str]) -> bool:
        """Return whether it is among the hosts; one without a port allows the usual ones only."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == USUAL_PORTS["https" if self.secure else "http"]
        return f"{host}:{self.port}" in hosts or (usual and host in hosts)


def require_allowed(url: str, hosts: Collection[str]) -> None:
    """Refuse an address that was not allowed."""
    try:
        allowed = Address.of(url).is_allowed(hosts)
    except ValueError:  # a port or an IPv6 address that cannot be
        allowed = False
    if not allowed:
        rule = "must point to a host, and port, that FLOWCAST_WEBHOOK_HOSTS allows"
        raise NotYet(f"url={url[:100]!r} is refused; it {rule}", [FieldError("body.url", url[:100], rule)])
