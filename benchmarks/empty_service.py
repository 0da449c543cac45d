"""The baseline of ``benchmarks.serving``: FastAPI with one route that returns at once, behind the same key check."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.keys.authentication import ReadKey, authenticate
from app.server.resources import open_resources
from app.settings import Settings

BODY_BYTES = "EMPTY_BODY_BYTES"


class KeyCheck:
    """Middleware that checks the key of a request as the service does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key of one request and pass it on."""
        if scope["type"] == "http":
            await authenticate(scope, scope["path"])
        await self._app(scope, receive, send)


def create_empty_app() -> FastAPI:
    """Create an app whose only route, ``GET /v1/empty``, returns a body of a given size."""
    body = b'{"empty": "' + b"x" * (int(os.environ[BODY_BYTES]) - 13) + b'"}'

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        resources = open_resources(Settings())
        app.state.api_keys = resources.api_keys
        yield
        resources.close()

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(KeyCheck)

    @app.get("/v1/empty")
    async def empty(caller: ReadKey) -> Response:
        return Response(body, media_type="application/json")

    return app
