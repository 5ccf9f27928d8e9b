"""Bytes on sockets to engine calls and back."""

from ling3.serve.limits import Limits
from ling3.serve.ports import ChatEngine, HealthSource, Service
from ling3.serve.server import Server

__all__ = ["ChatEngine", "HealthSource", "Limits", "Server", "Service"]
