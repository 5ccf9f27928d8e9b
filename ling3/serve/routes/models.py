"""GET /v1/models: the one model (E-57)."""

from __future__ import annotations

from ling3.serve.answer import Answer, json_answer
from ling3.serve.ports import ChatEngine
from ling3.serve.route import Exchange, HttpRequest, Route

OWNER = "mindnano"
"""Kept for existing clients (E-5)."""


def models(engine: ChatEngine) -> Route:
    def handle(_request: HttpRequest, _exchange: Exchange) -> Answer:
        model = {
            "id": engine.model_id,
            "object": "model",
            "created": 0,
            "owned_by": OWNER,
            "context_length": engine.context_length,
        }
        return json_answer(200, {"object": "list", "data": [model]})

    return Route("/v1/models", "GET", handle)
