"""A server around a scripted engine, and the smallest client that shows every byte."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fake_engine import FakeEngine

from ling3.serve import Limits, Server, Service
from ling3.serve.limits import DEFAULT_LIMITS

HOST = "127.0.0.1"
CHAT = "/v1/chat/completions"
USER_HI = [{"role": "user", "content": "hi"}]
PATIENCE_S = 10.0


class Facts:
    """Facts of a start, as the command line gathers them."""

    device = {"npu": "absent"}
    initialization_ms = 12.5
    warmup_ms = 3.5
    weight_memory = {"source_weight_pagecache_resident_mib": 1.0}
    weight_format = {"source": "custom_per_channel_w4", "execution": "W4A8"}


@dataclass(frozen=True)
class Running:
    """A server that is serving, and the engine behind it."""

    engine: FakeEngine
    port: int
    quit_flag: threading.Event
    thread: threading.Thread

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=PATIENCE_S)

    def raw(self, data: bytes, piece: int | None = None) -> Response:
        """Send bytes, all at once or in pieces, and read to the end."""
        with self.connect() as sock:
            for part in cut(data, piece or len(data) or 1):
                sock.sendall(part)
            return Response.read(sock)

    def request(self, method: str, path: str, body: bytes | None = None, *headers: str) -> Response:
        return self.raw(request_bytes(method, path, body, *headers))

    def post(self, body: bytes) -> Response:
        return self.request("POST", CHAT, body)

    def chat(self, **fields: Any) -> Response:
        return self.post(json.dumps({"messages": USER_HI} | fields).encode())


@dataclass(frozen=True)
class Response:
    status: int
    head: bytes
    headers: dict[str, str]
    body: bytes

    @classmethod
    def read(cls, sock: socket.socket) -> Response:
        return cls.parse(cls.read_rest(sock))

    @staticmethod
    def read_rest(sock: socket.socket) -> bytes:
        received = bytearray()
        while data := sock.recv(65536):
            received += data
        return bytes(received)

    @classmethod
    def parse(cls, data: bytes) -> Response:
        head, _, body = data.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return cls(int(status_line.split(" ")[1]), head, headers, body)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, whose shape every error shares (E-51)."""
        error: dict[str, Any] = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    @property
    def frames(self) -> list[str]:
        """The data of each event of a stream."""
        *events, rest = self.body.decode().split("\n\n")
        assert rest == ""
        assert all(event.startswith("data: ") for event in events)
        return [event.removeprefix("data: ") for event in events]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The events before `[DONE]`, decoded."""
        *chunks, last = self.frames
        assert last == "[DONE]"
        return [json.loads(chunk) for chunk in chunks]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def request_bytes(method: str, path: str, body: bytes | None = None, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: board:9091", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


@contextmanager
def serving(engine: FakeEngine, limits: Limits = DEFAULT_LIMITS) -> Iterator[Running]:
    """A server on a free port of the loopback address until the block ends."""
    with Server(limits) as server:
        server.bind(HOST, 0)
        server.listen()
        quit_flag = threading.Event()
        thread = threading.Thread(target=server.serve, args=(Service(engine, Facts()), quit_flag))
        running = Running(engine, server.address[1], quit_flag, thread)
        thread.start()
        try:
            yield running
        finally:
            quit_flag.set()
            thread.join()


def in_background(action: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread
