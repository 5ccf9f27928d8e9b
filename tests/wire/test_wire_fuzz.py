"""One law for every input: a valid answer, a 4xx, or a close. Never a traceback, a hang or a poisoned server."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fake_engine import FakeEngine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire import CHAT, USER_HI, Response, Running, cut, request_bytes, serving

from ling3.errors import RequestError
from ling3.serve import Limits
from ling3.serve.inbound import Inbound
from ling3.serve.route import HttpRequest, Route
from ling3.serve.schema import parse_chat

SMALL = Limits(max_body_bytes=2000)
NO_ANSWER_S = 0.02
"""After this long without an answer the request is incomplete, and the client says that nothing more comes."""
GOOD = request_bytes("POST", CHAT, json.dumps({"messages": USER_HI, "stream": True}).encode())
CHUNKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'5\r\n{"mes\r\n3;x=y\r\nsag\r\n0\r\nTrailer: x\r\n\r\n'
)
SCRAPS = [b"\r\n", b"\r\n\r\n", b"\n", b":", b" ", b"\x00", b"\xff", b"GET ", b"POST ", b"HTTP/1.1", b"Host: a\r\n",
          b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"/health", b"/v1/",
          b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"{", b"[", b'"', b"\xf0\x9f"]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(FakeEngine(), SMALL) as running:
        yield running


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request with some of its bytes replaced, removed or put in."""
    data = bytearray(draw(st.sampled_from([GOOD, CHUNKED])))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 8)))
        data[start:end] = draw(st.one_of(st.binary(max_size=6), st.sampled_from(SCRAPS)))
    return bytes(data)


requests = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(SCRAPS), max_size=20).map(b"".join), damaged())


def check_law(server: Running, data: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with server.connect() as sock:
        try:
            sock.sendall(data)
            if not select.select([sock], [], [], NO_ANSWER_S)[0]:
                sock.shutdown(socket.SHUT_WR)
            received = Response.read_rest(sock)
        except ConnectionError:
            received = b""
    final = received.removeprefix(b"HTTP/1.1 100 \r\n\r\n")
    if final:
        answer = Response.parse(final)
        assert answer.status in (200, 204) or 400 <= answer.status < 500
        if answer.status >= 400 and answer.body:
            assert answer.error["message"]
    assert server.request("GET", "/health").status == 200
    assert "Traceback" not in capfd.readouterr().err


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=requests)
def test_any_bytes(server: Running, data: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    check_law(server, data, capfd)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "model temperature top_p top_k repeat_penalty seed stop stream stream_options max_tokens user session_id n "
    "max_completion_tokens cache_prompt enable_thinking chat_template_kwargs reasoning_effort tools tool_choice "
    "flow_control response_format logprobs logit_bias presence_penalty function_call modalities"
).split()
PARTS = ("role", "content", "tool_calls", "reasoning_content", "tool_call_id", "name")
message = st.dictionaries(st.sampled_from(PARTS), json_values | st.sampled_from(["user", "tool"]))
messages = st.lists(message, max_size=3)


@settings(deadline=None, max_examples=30)
@given(fields=st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4), talk=st.just(USER_HI) | messages)
def test_any_json_in_any_field_is_accepted_or_a_4xx(fields: dict[str, Any], talk: Any) -> None:
    try:
        call = parse_chat(json.dumps({"messages": talk} | fields).encode(), "ling3-tiny", False)
    except RequestError as error:
        assert error.status in (400, 404)
        assert error.code in ("invalid_parameter", "invalid_flow_control", "model_not_found")
        assert error.param
    else:
        assert call.request.messages


def anything(request: HttpRequest) -> Route:
    return Route(request.path, request.method, lambda _request, _exchange: None)


def outcome(data: bytes, sizes: list[int]) -> tuple[HttpRequest | None, str | None]:
    """The request, or the code of its refusal, when the bytes come in pieces of these sizes (the last one repeats)."""
    inbound = Inbound(SMALL, anything)
    pieces, start = [], 0
    for size in sizes[:-1]:
        pieces.append(data[start : start + size])
        start += size
    for piece in [*pieces, *cut(data[start:], sizes[-1])]:
        if piece:
            try:
                inbound.feed(piece)
            except RequestError as error:
                return None, error.code
            if inbound.complete:
                return inbound.request, None
    return None, None


@settings(deadline=None, max_examples=50)
@given(data=requests, sizes=st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_the_cut_of_the_bytes_does_not_matter(data: bytes, sizes: list[int]) -> None:
    whole, pieces = outcome(data, [len(data) + 1]), outcome(data, sizes)
    assert whole == pieces
