"""A quick way for the question asked most: one link's latest forecast, when it lies ready on the board."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.dependencies import READ
from app.forecasts.windows import HORIZONS
from app.runtime import Runtime

# The plain questions, as they are asked; every other goes the usual way.
PLAIN = {b"": 1} | {b"horizon=%d" % horizon: horizon for horizon in range(1, HORIZONS + 1)}


class JsonBytes(Response):
    """JSON that is already written."""

    media_type = "application/json"


class ReadyRoute(APIRoute):
    """Answers a plain question from the board; reading declared parameters would cost twice the answer itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Try the board first."""
        usual = super().get_route_handler()

        async def handler(request: Request) -> Response:
            horizons = PLAIN.get(request.scope["query_string"])
            if horizons is None:
                return await usual(request)
            await READ.caller(request)
            board = cast(Runtime, request.app.state.runtime).board
            entry = board.ready(request.path_params["link_id"])
            rendered, age = (None, 0) if entry is None else board.rendered(entry)
            return await usual(request) if rendered is None else JsonBytes(rendered.body(horizons, age))

        return handler
