"""Which methods a path knows: frameworks name those of the first route that matches only."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from starlette.routing import Route
from starlette.types import Scope


def route_path(scope: Scope) -> str:
    """Return the path of a request without the prefix that a reverse proxy may have left on it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root + "/") else path


class MethodsByPath:
    """The methods of every path, asked only where one was wrong."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._routes = [route for router in routers for route in router.routes if isinstance(route, Route)]

    def of(self, scope: Scope) -> set[str]:
        """Return the methods that the path of a request has."""
        path = route_path(scope)
        return {method for route in self._routes if route.path_regex.match(path) for method in route.methods or ()}
