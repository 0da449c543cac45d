"""``GET /v1/events``: new forecasts and activations as they happen."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request, Response

from app.database import reading
from app.dependencies import ReadKey, RuntimeDep
from app.registry.activations import Activation, activations_after, newest_activation
from app.runtime import Runtime
from app.web.event_stream import EVENT_SCHEMA, EVENT_STREAM, Frame, stream

router = APIRouter(prefix="/v1", tags=["events"])

MOST_ACTIVATIONS = 10_000
LOOK_BACK = 1000


@router.get(
    "/events",
    summary="Events",
    response_class=Response,
    responses={200: {"content": {EVENT_STREAM: {"schema": EVENT_SCHEMA}}, "description": "Server-sent events"}},
)
async def get_events(request: Request, runtime: RuntimeDep, caller: ReadKey) -> Response:
    """Stream `forecast` events, one a link whose latest forecast is new, and `activation` events, from now on."""
    return stream(request, runtime.changes, Listener(runtime).look, runtime.settings.stream_seconds)


class Listener:
    """One caller's view: which forecasts and activations it has been told of."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._forecasts: dict[str, tuple[int | None, int]] | None = None
        self._activations: set[int] = set()
        self._newest = 0

    def look(self, _last: Frame | None) -> tuple[list[Frame], bool]:
        """Give what is new since the last look; the first one only takes note."""
        entries = self._runtime.board.look_up()
        now = {link_id: (entry.basis.as_of, entry.basis.active_version) for link_id, entry in entries.items()}
        # PostgreSQL may show a number before a lower one that is committed later: so look back a little.
        with reading(self._runtime.engine) as session:
            newest = newest_activation(session)
            since = newest if self._forecasts is None else self._newest
            recent = activations_after(session, max(0, since - LOOK_BACK), MOST_ACTIVATIONS)
        told, before = self._forecasts, self._activations
        self._forecasts, self._newest = now, max(self._newest, newest)
        self._activations = {row.id for row, _ in recent} | {number for number in before if number > newest - LOOK_BACK}
        if told is None:
            return [Frame("ready", json.dumps({"links": len(now)}))], False
        frames = [Frame("activation", _activation(row, link_id)) for row, link_id in recent if row.id not in before]
        for link_id, entry in entries.items():
            rendered, age = self._runtime.board.rendered(entry)
            if rendered is not None and now[link_id] != told.get(link_id):
                frames.append(Frame("forecast", rendered.body(1, age).decode()))
        return frames, False


def _activation(row: Activation, link_id: str) -> str:
    facts = {
        "link_id": link_id,
        "version": row.version,
        "previous_version": row.previous_version,
        "activated_at": row.activated_at.isoformat(),
        "reason": row.reason,
    }
    return json.dumps(facts)
