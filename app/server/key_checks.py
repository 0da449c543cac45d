"""The key check of every route, known before the request is routed and any of its body is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from fastapi import APIRouter
from fastapi.routing import APIRoute

from app.keys.dependencies import KeyWith


class GuardedRoute(NamedTuple):
    """A route, and the check that a caller's key must pass."""

    route: APIRoute
    check: KeyWith


class KeyChecks:
    """The routes that need a key, each with the check that its own parameters declare."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._guarded = [GuardedRoute(route, check) for route in routes if (check := key_check(route.endpoint))]

    def find(self, method: str, path: str) -> GuardedRoute | None:
        """Return the route of a request; None where no route that needs a key matches."""
        for guarded in self._guarded:
            if method in (guarded.route.methods or ()) and guarded.route.path_regex.match(path):
                return guarded
        return None


@cache  # endpoints are module-level functions; reading their annotations takes most of the time to make an app
def key_check(endpoint: Callable[..., Any]) -> KeyWith | None:
    """Return the key check among the parameters of an endpoint."""
    hints = get_type_hints(endpoint, include_extras=True).values()
    dependencies = (getattr(part, "dependency", None) for hint in hints for part in getattr(hint, "__metadata__", ()))
    return next((found for found in dependencies if isinstance(found, KeyWith)), None)
