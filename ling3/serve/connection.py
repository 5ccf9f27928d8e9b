"""One accepted socket, from its first byte to its close: receive, send, watch, linger (E-45…E-49, E-81)."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time

from ling3.errors import RequestError
from ling3.serve.answer import (
    EVENT_STREAM,
    Answer,
    Headers,
    answer_bytes,
    error_answer,
    head_bytes,
    invalid_http,
    request_timeout,
)
from ling3.serve.inbound import Inbound, Resolve
from ling3.serve.life import READING, Life, State
from ling3.serve.limits import BODY_RECEIVE_BYTES, HEAD_RECEIVE_BYTES, Limits
from ling3.serve.route import HttpRequest, Route
from ling3.serve.routes.preflight import cors_headers

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Connection:
    """One request, one answer, then closed (D-6). Touched only by the owner of its state (life.py).

    The socket never blocks; `send` waits for room by polling. `stopping` is the server's shutdown flag.
    """

    def __init__(self, sock: socket.socket, limits: Limits, resolve: Resolve, stopping: threading.Event) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._limits = limits
        self._stopping = stopping
        self._inbound = Inbound(limits, resolve)
        self._life = Life()
        self._lost = False
        self._began = self._received = time.monotonic()
        """When the present phase (reading, lingering) began, and when bytes last came."""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def state(self) -> State:
        return self._life.state

    @property
    def request(self) -> HttpRequest:
        """The complete request; only once the state is QUEUED or later."""
        assert self._inbound.request is not None
        return self._inbound.request

    @property
    def route(self) -> Route:
        assert self._inbound.route is not None
        return self._inbound.route

    # The reader's part.

    def receive(self) -> bool:
        """One receive. True when the request is complete; RequestError when it is refused."""
        data = self._receive(HEAD_RECEIVE_BYTES if self.state is State.HEAD else BODY_RECEIVE_BYTES)
        if data is None:
            return False
        self._inbound.feed(data)
        if self.state is State.HEAD and self._inbound.request is not None:
            self._life.advance(State.BODY)
            self._send(self._inbound.interim(), 0)
        return self._inbound.complete

    def drop_input(self) -> None:
        """While LINGERING: one receive that is thrown away; the peer's end closes the connection."""
        if self._receive(BODY_RECEIVE_BYTES) == b"":
            self.close()

    def check_time(self, now: float) -> None:
        """RequestError when the request takes too long to arrive; closes what has lingered long enough (E-46).

        Bytes that wait unread are no silence of the peer, only our own delay.
        """
        limits, elapsed, idle = self._limits, now - self._began, now - self._received
        if self.state in READING:
            if elapsed > limits.read_total_s:
                raise request_timeout(f"the request did not arrive within {limits.read_total_s:g} s")
            if idle > limits.receive_idle_s and not self._poll(select.POLLIN, 0):
                raise invalid_http("incomplete request: nothing more came")
        elif elapsed > limits.linger_total_s or idle > limits.linger_idle_s:
            self.close()

    def refuse(self, error: RequestError) -> None:
        """Answer while still reading. The send buffer is empty: the answer fits, or there is nobody to wait for."""
        self._send(self._render(error_answer(error)), 0)
        self.finish()

    def enqueue(self) -> None:
        self._life.advance(State.QUEUED)

    # The worker's part.

    def run(self) -> None:
        self._life.advance(State.RUNNING)

    def answer(self, answer: Answer) -> None:
        self.send(self._render(answer))

    def start_stream(self) -> bool:
        self._life.advance(State.STREAMING)
        return self.send(head_bytes(200, (*EVENT_STREAM, *self._cors())))

    def send(self, data: bytes) -> bool:
        return self._send(data, self._limits.send_stall_s)

    def alive(self) -> bool:
        """E-81, E-82. A peer that shut down its sending side counts as gone (D-9); unread input does not matter."""
        if self._lost or self._stopping.is_set():
            return False
        return not self._poll(select.POLLRDHUP, 0)

    # The end, for both.

    def finish(self) -> None:
        """The answer is out: shut our side and linger, or close at once when nobody is there."""
        if not self._lost:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self._lost = True
        if self._lost:
            self.close()
            return
        self._life.advance(State.LINGERING)
        self._began = self._received = time.monotonic()

    def close(self) -> None:
        """Close without further words. What a lost peer never fetched is dropped instead of kept by the kernel."""
        self._life.advance(State.CLOSED)
        if self._lost:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._socket.close()

    def _receive(self, size: int) -> bytes | None:
        """Received bytes, empty at the peer's end or a socket error, None when there is nothing yet."""
        try:
            data = self._socket.recv(size)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        self._received = time.monotonic()
        return data

    def _send(self, data: bytes, stall_s: float) -> bool:
        rest = memoryview(data)
        while rest and not self._lost:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._lost = not self._poll(select.POLLOUT, stall_s)
            except OSError:
                self._lost = True
        return not self._lost

    def _poll(self, events: int, wait_s: float) -> bool:
        """Whether one of the events, or an error or hang-up, which are always reported, comes within the time."""
        poll = select.poll()
        poll.register(self._socket, events)
        return bool(poll.poll(wait_s * 1000))

    def _render(self, answer: Answer) -> bytes:
        request = self._inbound.request
        return answer_bytes(answer, self._cors(), without_body=request is not None and request.method == "HEAD")

    def _cors(self) -> Headers:
        request = self._inbound.request
        return cors_headers(request) if request is not None else ()
