"""Reading requests: whatever way the bytes come, the request is understood or refused, and never waits for others."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from fake_engine import FakeEngine
from wire import CHAT, HOST, Response, Running, request_bytes, serving

from ling3.errors import RequestError
from ling3.serve import Limits
from ling3.serve.connection import Connection
from ling3.serve.router import Router

HEALTH = request_bytes("GET", "/health")
EMOJI_CHAT = json.dumps({"messages": [{"role": "user", "content": "grüß 😀"}]}, ensure_ascii=False).encode()


@pytest.fixture(scope="module")
def small() -> Iterator[Running]:
    """A server with a small body limit."""
    with serving(FakeEngine(), Limits(max_body_bytes=20_000)) as running:
        yield running


def chunked(*chunks: bytes) -> bytes:
    head = request_bytes("POST", CHAT, None, "Transfer-Encoding: chunked")
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def test_a1_chunked_body_cut_inside_a_character(server: Running) -> None:
    middle = EMOJI_CHAT.index("😀".encode()) + 2
    answer = server.raw(chunked(EMOJI_CHAT[:5], EMOJI_CHAT[5:middle], EMOJI_CHAT[middle:]))
    assert answer.status == 200
    assert server.engine.requests[0].messages[0]["content"] == "grüß 😀"


def test_a2_last_chunk_in_a_packet_of_its_own(server: Running) -> None:
    request = chunked(EMOJI_CHAT)
    with server.connect() as sock:
        sock.sendall(request[:-5])
        time.sleep(0.3)
        sock.sendall(request[-5:])
        assert Response.read(sock).status == 200


def test_a2_a_chunk_delayed_by_two_seconds_is_within_the_default_limit() -> None:
    assert Limits().receive_idle_s == 2.5


def test_a3_bytes_after_a_refused_request_are_never_a_second_request(server: Running) -> None:
    answer = server.raw(request_bytes("POST", "/nowhere", b"x" * 60) + HEALTH)
    assert answer.status == 404
    assert answer.headers["connection"] == "close"
    assert answer.body.count(b"error") == 2  # one object: its key and its type


def test_a5_one_answer_a_connection_in_order(server: Running) -> None:
    kinds = [HEALTH, request_bytes("GET", "/v1/models"), request_bytes("POST", CHAT, b"{")]
    marks = [b'"status":"ok"', b'"object":"list"', b"invalid_json"]
    for turn in range(30):
        assert marks[turn % 3] in server.raw(kinds[turn % 3]).body


def test_pipelined_bytes_are_ignored(server: Running) -> None:
    assert server.raw(HEALTH * 3).body.count(b'"status":"ok"') == 1


@pytest.mark.parametrize("request_in", [request_bytes("POST", CHAT, EMOJI_CHAT), chunked(EMOJI_CHAT)])
def test_byte_by_byte(server: Running, request_in: bytes) -> None:
    assert server.raw(request_in, piece=1).status == 200


def test_a4_expect_is_answered_before_the_body_is_sent(server: Running) -> None:
    request = request_bytes("POST", CHAT, EMOJI_CHAT, "Expect: 100-continue")
    with server.connect() as sock:
        sock.sendall(request[: -len(EMOJI_CHAT)])
        assert sock.recv(100) == b"HTTP/1.1 100 \r\n\r\n"
        sock.sendall(EMOJI_CHAT)
        assert Response.read(sock).status == 200


def test_expect_with_a_body_already_here_needs_no_interim_answer(server: Running) -> None:
    answer = server.raw(request_bytes("POST", CHAT, EMOJI_CHAT, "Expect: 100-continue"))
    assert answer.status == 200


def test_expect_of_a_body_above_the_limit_is_refused_at_once(small: Running) -> None:
    with small.connect() as sock:
        sock.sendall(request_bytes("POST", CHAT, None, "Content-Length: 20001", "Expect: 100-continue"))
        assert Response.read(sock).status == 413


def test_http_1_0_without_host(server: Running) -> None:
    assert server.raw(b"GET /health HTTP/1.0\r\n\r\n").status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost a\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2\r\n\r\n{}",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        b"POST "
        + CHAT.encode()
        + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    ],
)
def test_malformed_heads_are_invalid_http(server: Running, head: bytes) -> None:
    answer = server.raw(head)
    assert (answer.status, answer.error["code"]) == (400, "invalid_http")


def test_a_content_length_line_in_the_body_is_not_a_header(server: Running) -> None:
    answer = server.post(b'{"messages":\n\r\nContent-Length: 3\r\n')
    assert answer.error["code"] == "invalid_json"


def test_a_peer_that_stops_half_way_is_told_so(server: Running) -> None:
    with server.connect() as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\n")
        sock.shutdown(socket.SHUT_WR)
        assert Response.read(sock).error["code"] == "invalid_http"


def test_head_of_65536_bytes_is_read_and_one_more_refused(server: Running) -> None:
    def padded(size: int) -> bytes:
        bare = len(request_bytes("GET", "/health", None, "X: "))
        return request_bytes("GET", "/health", None, "X: " + "x" * (size - bare))

    assert server.raw(padded(65536)).status == 200
    answer = server.raw(padded(65537))
    assert (answer.status, answer.error["code"]) == (413, "too_large")


def test_a15_silence_ends_with_400_and_not_408() -> None:
    with serving(FakeEngine(), Limits(receive_idle_s=0.2)) as server, server.connect() as sock:
        sock.sendall(b"GET /hea")
        assert Response.read(sock).error["code"] == "invalid_http"


def test_bytes_that_wait_unread_are_no_silence() -> None:
    limits = Limits(read_total_s=1e9)
    with socket.create_server((HOST, 0)) as listening, socket.create_connection(listening.getsockname()) as client:
        connection = Connection(listening.accept()[0], limits, Router(()).resolve, threading.Event())
        much_later = time.monotonic() + 1000
        with pytest.raises(RequestError, match="nothing more came"):
            connection.check_time(much_later)
        client.sendall(b"GET")
        select.select([connection], [], [], 10)
        connection.check_time(much_later)
        connection.close()


def test_a_trickle_ends_with_408() -> None:
    with serving(FakeEngine(), Limits(read_total_s=0.4)) as server, server.connect() as sock:
        for byte in b"GET /health HTTP/1.1\r\n":
            sock.sendall(bytes([byte]))
            if select.select([sock], [], [], 0.05)[0]:
                break
        answer = Response.read(sock)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")


def test_a15_thirty_silent_sockets_hold_nobody_up(server: Running) -> None:
    silent = [server.connect() for _ in range(30)]
    try:
        for sock in silent[::2]:
            sock.sendall(b"POST /v1/chat")
        assert server.request("GET", "/health").status == 200
        assert server.chat().status == 200
    finally:
        for sock in silent:
            sock.close()


def test_declared_body_above_the_limit_is_413_and_the_upload_still_sees_it(small: Running) -> None:
    answer = small.post(b" " * 4_000_000)
    assert (answer.status, answer.error["code"]) == (413, "too_large")


def test_chunked_body_above_the_limit_is_413(small: Running) -> None:
    answer = small.raw(chunked(*[b" " * 1000] * 21))
    assert answer.status == 413


def test_body_of_exactly_the_limit_is_read(small: Running) -> None:
    assert small.post(EMOJI_CHAT.ljust(20_000)).status == 200


def test_a_large_body_is_noted_with_its_size(server: Running, capfd: pytest.CaptureFixture[str]) -> None:
    assert server.post(EMOJI_CHAT.ljust(1_048_577)).status == 200
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("request_warning:")]
    assert len(warnings) == 1
    assert "body_bytes=1048577" in warnings[0]


def test_one_connection_too_many_is_turned_away_and_the_rest_served() -> None:
    with serving(FakeEngine(), Limits(connections=2)) as server:
        silent = [server.connect(), server.connect()]
        try:
            assert server.raw(b"").status == 503
        finally:
            for sock in silent:
                sock.close()
        # The reader frees the places when it sees the hang-ups, which may be after it sees the next connection.
        statuses = (server.request("GET", "/health").status for _ in range(100))
        assert next(status for status in statuses if status != 503) == 200
