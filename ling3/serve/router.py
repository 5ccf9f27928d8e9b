"""Finds the route of a request while only its head is known, so that a refused upload need not be read (E-47, D-6)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ling3.serve.route import HttpRequest, Route
from ling3.serve.routes.preflight import preflight
from ling3.serve.routes.unknown import unknown_path, wrong_method

_ABSOLUTE_FORM = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_SLASHES = re.compile(r"/{2,}")


def normal_path(target: str) -> str:
    """The path of a request target: no `?query`, no doubled slashes, no trailing slash.

    A client that believes it speaks to a proxy sends the absolute form, which servers must accept.
    """
    target = _ABSOLUTE_FORM.sub("", target, count=1) if not target.startswith("/") else target
    path = re.split(r"[?#]", target, maxsplit=1)[0]
    path = _SLASHES.sub("/", path)
    return path.rstrip("/") or "/"


class Router:
    """The routes by path and method. HEAD is served by GET's route, OPTIONS by the CORS preflight."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._paths: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._paths.setdefault(route.path, {})[route.method] = route

    def resolve(self, request: HttpRequest) -> Route:
        """The route, or a refusal: 404 `not_found`, 405 `method_not_allowed`."""
        methods = self._paths.get(request.path)
        if methods is None:
            raise unknown_path(request)
        if request.method == "OPTIONS":
            return preflight(request.path, allowed(methods))
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            raise wrong_method(request, allowed(methods))
        return route


def allowed(methods: Iterable[str]) -> str:
    """The value of `Allow` for a path that has these methods."""
    names = {*methods, "OPTIONS"}
    if "GET" in names:
        names.add("HEAD")
    return ", ".join(sorted(names))
