"""A quick way for the question asked most: one link's latest forecast, when it lies ready on the board."""

from __future__ import annotations

from typing import cast

from fastapi import Response
from starlette.routing import BaseRoute

from app.forecasts.windows import HORIZONS
from app.keys.caller import Scope
from app.runtime import Runtime
from app.web.exchange import CALLER, Exchange
from app.web.media_types import JSON, WHATEVER

# The plain questions, as they are asked; every other goes the usual way.
BEGIN, END = "/v1/links/", "/forecast"
ACCEPTED = (b"", *(media_type.encode() for media_type in WHATEVER))
PLAIN = {b"": 1} | {b"horizon=%d" % horizon: horizon for horizon in range(1, HORIZONS + 1)}


class JsonBytes(Response):
    """JSON that is already written."""

    media_type = JSON


class ReadyForecasts:
    """Answers a plain question from the board, before the app has its turn: its way costs several times the answer."""

    def __init__(self, route: BaseRoute) -> None:
        self._route = route  # what is answered in its place

    async def __call__(self, exchange: Exchange) -> Response | None:
        """Give the answer to a question if it lies ready, once it is known who asks; None sends it the usual way."""
        scope, path = exchange.scope, exchange.path
        horizons = PLAIN.get(scope["query_string"])
        if horizons is None or exchange.method != "GET" or not (path.startswith(BEGIN) and path.endswith(END)):
            return None
        if exchange.accept not in ACCEPTED:
            return None
        runtime = cast(Runtime, scope["app"].state.runtime)
        entry = runtime.board.ready(path[len(BEGIN) : -len(END)])
        rendered, age = (None, 0) if entry is None else runtime.board.rendered(entry)
        if rendered is None:
            return None
        scope["route"] = self._route
        caller = scope[CALLER] = await runtime.keys.identify(exchange.key, exchange.client)
        caller.may(Scope.READ.value)
        return JsonBytes(rendered.body(horizons, age))
