"""Runs exactly one request at a time; takes and gives Python objects, no JSON, no sockets."""

from ling3.engine.engine import Engine
from ling3.engine.metrics import MetricsLog
from ling3.engine.request import ChatRequest, Reply, Sampling, Sink

__all__ = ["ChatRequest", "Engine", "MetricsLog", "Reply", "Sampling", "Sink"]
