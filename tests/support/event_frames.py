"""Parsing of server-sent events."""

import json
from typing import Any, NamedTuple


class Event(NamedTuple):
    name: str
    data: dict[str, Any]
    id: str


def events_in(text: str) -> list[Event]:
    """Return the events of a stream, without comments."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append(Event(fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return found
