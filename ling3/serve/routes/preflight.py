"""OPTIONS: a browser's question before it sends the real request (user-pain A6)."""

from __future__ import annotations

import re

from ling3.serve.answer import Answer, Headers
from ling3.serve.route import Exchange, HttpRequest, Route

_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~, ]+")
_USUAL_HEADERS = "Authorization, Content-Type"
_MAX_AGE_S = 600


def cors_headers(request: HttpRequest) -> Headers:
    """What an answer to a browser must carry so that the page may read it; nothing for other clients."""
    return (("Access-Control-Allow-Origin", "*"),) if "origin" in request.headers else ()


def preflight(path: str, allow: str) -> Route:
    """The OPTIONS route of a path; it never asks for a key and allows every header that was named."""

    def handle(request: HttpRequest, _exchange: Exchange) -> Answer:
        wanted = request.headers.get("access-control-request-headers", "")
        return Answer(
            204,
            None,
            (
                ("Allow", allow),
                ("Access-Control-Allow-Methods", allow),
                ("Access-Control-Allow-Headers", wanted if _HEADER_NAMES.fullmatch(wanted) else _USUAL_HEADERS),
                ("Access-Control-Max-Age", str(_MAX_AGE_S)),
            ),
        )

    return Route(path, "OPTIONS", handle)
