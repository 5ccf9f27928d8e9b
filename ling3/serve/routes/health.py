"""GET /health: machine, weights and engine, without waiting for the engine (E-56)."""

from __future__ import annotations

from ling3.serve.answer import Answer, json_answer
from ling3.serve.ports import Service
from ling3.serve.route import Exchange, HttpRequest, Route

INTEGRATION_VERSION = 5

CAPABILITIES = ("top_k", "repeat_penalty", "enable_thinking")
"""Those of E-56 that are true of this server; the others join when they work."""


def health(service: Service) -> Route:
    def handle(_request: HttpRequest, _exchange: Exchange) -> Answer:
        engine, facts = service.engine, service.health
        return json_answer(
            200,
            {
                "status": "ok",
                "active": engine.active,
                "device": facts.device,
                "context_length": engine.context_length,
                "initialization_ms": facts.initialization_ms,
                "warmup_ms": facts.warmup_ms,
                "weight_memory": facts.weight_memory,
                "weight_format": facts.weight_format,
                "mindnano_integration_version": INTEGRATION_VERSION,
                "capabilities": dict.fromkeys(CAPABILITIES, True),
                "generation": engine.generation_status(),
            },
        )

    return Route("/health", "GET", handle)
