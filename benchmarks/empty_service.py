"""The yardstick of ``benchmarks.serving``: FastAPI with one route that answers at once, behind the same key check."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.request_context import SENT_KEY
from app.keys.dependencies import ReadKey
from app.server.resources import open_resources
from app.settings import Settings

BODY_BYTES = "EMPTY_BODY_BYTES"


class KeyHeader:
    """Store the key of a request where the key check reads it, as the service's middleware does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the header of HTTP requests."""
        if scope["type"] == "http":
            scope[SENT_KEY] = dict(scope["headers"]).get(b"x-api-key", b"").decode("latin-1")
        await self._app(scope, receive, send)


def create_empty_app() -> FastAPI:
    """Make a service that answers ``GET /empty`` with a body of a given size, and does nothing else."""
    body = b'{"empty": "' + b"x" * (int(os.environ[BODY_BYTES]) - 13) + b'"}'

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        resources = open_resources(Settings())
        app.state.api_keys = resources.api_keys
        yield
        resources.close()

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(KeyHeader)

    @app.get("/empty")
    async def empty(caller: ReadKey) -> Response:
        return Response(body, media_type="application/json")

    return app
