"""Every endpoint (E-55)."""

from __future__ import annotations

from ling3.serve.ports import Service
from ling3.serve.route import Route
from ling3.serve.routes.chat import chat
from ling3.serve.routes.health import health
from ling3.serve.routes.models import models
from ling3.serve.routes.root import root


def all_routes(service: Service) -> tuple[Route, ...]:
    return (root(service.engine), health(service), models(service.engine), chat(service))
