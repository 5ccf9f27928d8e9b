"""GET /: what this is and where the API is, for people and for probes (user-pain A14)."""

from __future__ import annotations

from ling3.serve.answer import Answer, json_answer
from ling3.serve.ports import ChatEngine
from ling3.serve.route import Exchange, HttpRequest, Route
from ling3.serve.routes.unknown import base_url


def root(engine: ChatEngine) -> Route:
    def handle(request: HttpRequest, _exchange: Exchange) -> Answer:
        return json_answer(
            200, {"name": "ling3", "model": engine.model_id, "base_url": base_url(request), "health": "/health"}
        )

    return Route("/", "GET", handle)
