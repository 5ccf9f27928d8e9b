"""Answers: what a route returns, and how it looks in bytes (E-50, E-51)."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from ling3.errors import RequestError

Headers = tuple[tuple[str, str], ...]

JSON_TYPE = "application/json; charset=utf-8"
EVENT_STREAM: Headers = (
    ("Content-Type", "text/event-stream; charset=utf-8"),
    ("Cache-Control", "no-cache"),
    ("X-Accel-Buffering", "no"),
)
"""The head of an event stream (E-72). It has no length: the stream ends when the connection closes."""

DEFAULT_RETRY_AFTER_S = 1


class Refusal(RequestError):
    """A refusal by the HTTP layer that needs headers of its own, such as `Allow`."""

    def __init__(self, status: int, code: str, message: str, headers: Headers) -> None:
        super().__init__(status, code, message)
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response. `body` None means a status that has no body at all (204)."""

    status: int
    body: bytes | None
    headers: Headers = ()


def json_answer(status: int, value: dict[str, Any], headers: Headers = ()) -> Answer:
    return Answer(status, orjson.dumps(value), (("Content-Type", JSON_TYPE), *headers))


def error_body(error: RequestError) -> dict[str, Any]:
    """The OpenAI error shape (E-51)."""
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    elif error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = "server_error"
    else:
        kind = "invalid_request_error"
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}


def error_answer(error: RequestError) -> Answer:
    headers = error.headers if isinstance(error, Refusal) else ()
    return json_answer(error.status, error_body(error), (*headers, *_retry_headers(error)))


def _retry_headers(error: RequestError) -> Headers:
    """`Retry-After` where a retry helps; OpenAI's clients are told not to repeat a canceled run."""
    if error.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        seconds = error.retry_after or DEFAULT_RETRY_AFTER_S
        return (("Retry-After", str(int(seconds))),)
    if error.code == "request_canceled":
        return (("x-should-retry", "false"),)
    return ()


def head_bytes(status: int, headers: Headers) -> bytes:
    """Status line and headers; every answer closes the connection (D-6)."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines += ["Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1")


def answer_bytes(answer: Answer, extra: Headers = (), without_body: bool = False) -> bytes:
    """The whole response. `without_body` answers HEAD: the length is announced, the body stays away."""
    if answer.body is None:
        return head_bytes(answer.status, (*answer.headers, *extra))
    length = ("Content-Length", str(len(answer.body)))
    head = head_bytes(answer.status, (*answer.headers, *extra, length))
    return head if without_body else head + answer.body


def request_canceled() -> RequestError:
    """409: the run ended early (E-53, E-74)."""
    return RequestError(
        409,
        "request_canceled",
        "the request was canceled; text received so far is not a finished answer",
    )


def inference_error() -> RequestError:
    """500 without internals; the details are on stderr (E-52)."""
    return RequestError(500, "inference_error", "an internal error ended this request; the server goes on")


def request_timeout(message: str) -> RequestError:
    return RequestError(408, "request_timeout", message)


def invalid_http(message: str) -> RequestError:
    return RequestError(400, "invalid_http", message)


def too_large(message: str) -> RequestError:
    return RequestError(413, "too_large", message)


def server_busy() -> RequestError:
    """503: too many connections or complete requests wait already (E-43)."""
    return RequestError(503, "server_busy", "too many requests are waiting; try again shortly")


def engine_busy() -> RequestError:
    """429: every thread that may run the engine is taken (D-6)."""
    return RequestError(429, "engine_busy", "the engine is busy with another request; try again shortly")
