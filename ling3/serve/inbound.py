"""Bytes of one connection to one request: h11 and the limits of E-46, without socket or clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import h11

from ling3.serve.answer import invalid_http, too_large
from ling3.serve.limits import LARGE_BODY_BYTES, Limits
from ling3.serve.route import HttpRequest, Route
from ling3.serve.router import normal_path
from ling3.tell import tell

Resolve = Callable[[HttpRequest], Route]

_VERSIONS = (b"1.0", b"1.1")
_LENGTH_LINE = re.compile(rb"^content-length[ \t]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_BLANK_LINE = re.compile(rb"\n\r?\n")


class Inbound:
    """Feeds on received bytes until `complete`. Every failure is a RequestError that ends the reading.

    The route is looked up and the declared length checked as soon as the head is there, so a refused upload is
    refused before it is read.
    """

    def __init__(self, limits: Limits, resolve: Resolve) -> None:
        self._limits = limits
        self._resolve = resolve
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._head = bytearray()
        self._body = bytearray()
        self.request: HttpRequest | None = None
        """Known from the blank line on, even when the head is refused; has its body when `complete`."""
        self.route: Route | None = None
        self.complete = False

    def feed(self, data: bytes) -> None:
        """Take what one receive brought; empty means that the peer sends no more."""
        if self.request is None:
            self._head += data
            if len(self._head) > self._limits.head_bytes:
                raise too_large(f"the request head is larger than {self._limits.head_bytes} bytes")
        try:
            self._h11.receive_data(data)
            while not self.complete:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                raise too_large("a line of the request is too long") from None
            raise invalid_http(f"malformed or incomplete request: {error}") from None

    def interim(self) -> bytes:
        """`100 Continue` if the client waits for it before it sends the body, else nothing."""
        if not self._h11.they_are_waiting_for_100_continue:
            return b""
        return self._h11.send(h11.InformationalResponse(status_code=100, headers=[])) or b""

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._take_head(event)
        elif isinstance(event, h11.Data):
            self._body += event.data
            self._check_body_size(len(self._body))
        elif isinstance(event, h11.EndOfMessage):
            self._finish()
        else:
            raise invalid_http("the connection ended before a request was complete")

    def _take_head(self, event: h11.Request) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        target = event.target.decode("latin-1")
        self.request = HttpRequest(event.method.decode("latin-1"), normal_path(target), headers)
        if event.http_version not in _VERSIONS:
            raise invalid_http("only HTTP/1.1 and HTTP/1.0 are spoken here")
        self._check_framing(headers)
        self.route = self._resolve(self.request)
        self._check_body_size(int(headers.get("content-length", "0")))

    def _check_framing(self, headers: dict[str, str]) -> None:
        """Two statements about the length of a body are a mistake or an attack, also when they agree (E-48)."""
        lengths = _LENGTH_LINE.findall(_BLANK_LINE.split(self._head, maxsplit=1)[0])
        stated_twice = len(lengths) > 1 or any(b"," in length for length in lengths)
        if stated_twice or (lengths and "transfer-encoding" in headers):
            raise invalid_http("the length of the body is stated more than once")
        self._head.clear()

    def _check_body_size(self, size: int) -> None:
        if size > self._limits.max_body_bytes:
            raise too_large(f"the body is larger than {self._limits.max_body_bytes} bytes")

    def _finish(self) -> None:
        assert self.request is not None
        if len(self._body) > LARGE_BODY_BYTES:
            tell(f"request_warning: large request body_bytes={len(self._body)}")
        self.request = replace(self.request, body=bytes(self._body))
        self._body.clear()
        self.complete = True
