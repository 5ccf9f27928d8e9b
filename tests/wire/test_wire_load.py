"""Many clients, vanishing clients, and the end: nobody pays for another's behaviour."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from fake_engine import FakeEngine, Hold, content
from wire import CHAT, HOST, USER_HI, Response, Running, in_background, request_bytes, serving

from ling3.errors import StartError
from ling3.serve import Limits, Server


@pytest.fixture
def server(shared: Running) -> Iterator[Running]:
    shared.engine.play()
    yield shared
    assert shared.engine.wait_idle()


def start_chat(server: Running, **fields: Any) -> socket.socket:
    """Send a chat request and wait until the engine runs it."""
    sock = server.connect()
    sock.sendall(request_bytes("POST", CHAT, json.dumps({"messages": USER_HI} | fields).encode()))
    assert server.engine.begun.wait(5)
    return sock


@pytest.mark.parametrize("stream", [False, True])
def test_f1_a_client_gone_during_prefill_frees_the_engine(server: Running, stream: bool) -> None:
    server.engine.play(Hold())
    start_chat(server, stream=stream).close()
    assert server.engine.wait_idle()
    assert server.engine.outcomes == ["canceled"]


@pytest.mark.parametrize("stream", [False, True])
def test_d9_a_half_closed_client_counts_as_gone(server: Running, stream: bool) -> None:
    server.engine.play(Hold())
    with start_chat(server, stream=stream) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert server.engine.wait_idle()
        assert server.engine.outcomes == ["canceled"]


def test_e81_unread_input_is_no_loss(server: Running) -> None:
    hold = Hold()
    server.engine.play(hold, content("x"))
    with start_chat(server) as sock:
        sock.sendall(b"more than was declared")
        time.sleep(0.05)
        hold.release.set()
        assert Response.read(sock).status == 200


def test_f2_a_stream_closed_after_three_pieces_frees_the_engine(server: Running) -> None:
    server.engine.play(content("a"), content("b"), content("c"), Hold())
    with start_chat(server, stream=True) as sock:
        seen = b""
        while b'"c"' not in seen:
            seen += sock.recv(4096)
    assert server.engine.wait_idle()
    server.engine.play()
    assert server.chat().status == 200


def test_a12_a_second_request_is_429_and_the_first_is_answered(server: Running) -> None:
    hold = Hold()
    server.engine.play(hold, content("first"))
    with start_chat(server) as first:
        second = server.chat()
        assert (second.status, second.error["code"]) == (429, "engine_busy")
        assert int(second.headers["retry-after"]) >= 1
        hold.release.set()
        assert Response.read(first).json()["choices"][0]["message"]["content"] == "first"


def test_f8_twenty_requests_during_one_generation(server: Running) -> None:
    hold = Hold()
    server.engine.play(hold, content("first"))
    statuses: Counter[int] = Counter()
    with start_chat(server) as first:
        threads = [in_background(lambda: statuses.update([server.chat().status])) for _ in range(20)]
        for thread in threads:
            thread.join()
        assert statuses == {429: 20}
        hold.release.set()
        assert Response.read(first).status == 200
    assert server.chat().status == 200


class WaitingEngine(FakeEngine):
    """Keeps every request on its worker, as an engine with a waiting room does."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.leave = threading.Event()

    def run(self, request: Any, sink: Any) -> Any:
        self.entered.release()
        self.leave.wait(5)
        return super().run(request, sink)


class SlowStatusEngine(WaitingEngine):
    """Keeps the worker of a health request as well, which a real engine must not."""

    def generation_status(self) -> dict[str, Any]:
        self.entered.release()
        self.leave.wait(5)
        return super().generation_status()


def test_d6_control_requests_get_through_while_inference_has_its_share() -> None:
    engine = WaitingEngine()
    with serving(engine) as server:
        waiting = [in_background(server.chat) for _ in range(3)]
        for _ in waiting:
            assert engine.entered.acquire(timeout=5)
        fourth = server.chat()
        assert (fourth.status, fourth.error["code"], fourth.headers["retry-after"]) == (429, "engine_busy", "1")
        assert server.request("GET", "/health").status == 200
        engine.leave.set()
        for thread in waiting:
            thread.join()
        assert server.chat().status == 200


def test_d6_three_of_four_and_nine_of_twelve() -> None:
    assert Limits().inference_slots == 3
    assert Limits(workers=12).inference_slots == 9
    with pytest.raises(ValueError, match="control"):
        Limits(workers=1)


def test_e43_more_complete_requests_than_may_wait_are_503() -> None:
    with serving(FakeEngine(), Limits(queued=0)) as server:
        answer = server.request("GET", "/health")
    assert (answer.status, answer.error["code"]) == (503, "server_busy")
    assert answer.headers["retry-after"] == "1"


def test_e45_a_client_that_does_not_read_is_lost_after_the_stall_time() -> None:
    engine = FakeEngine(*[content("x" * 100_000)] * 100)
    with serving(engine, Limits(send_stall_s=0.2)) as server:
        with start_chat(server, stream=True):
            assert engine.wait_idle()
            assert engine.outcomes == ["canceled"]
        engine.play()
        assert server.chat().status == 200


def test_f6_shutdown_when_idle_frees_the_port_at_once() -> None:
    with serving(FakeEngine()) as server:
        assert server.request("GET", "/health").status == 200
        server.quit_flag.set()
        server.thread.join(10)
        assert not server.thread.is_alive()
        with Server() as next_server:
            next_server.bind(HOST, server.port)
            next_server.listen()


@pytest.mark.parametrize("stream", [False, True])
def test_e117_shutdown_cancels_the_run_and_tells_its_client(stream: bool) -> None:
    engine = FakeEngine(Hold())
    with serving(engine) as server, start_chat(server, stream=stream) as sock:
        server.quit_flag.set()
        answer = Response.read(sock)
        server.thread.join(10)
        assert not server.thread.is_alive()
    assert answer.status == (200 if stream else 409)
    assert b"request_canceled" in answer.body


def test_e46_shutdown_answers_half_read_requests_with_408() -> None:
    with serving(FakeEngine()) as server, server.connect() as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        assert server.request("GET", "/health").status == 200
        server.quit_flag.set()
        answer = Response.read(sock)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")


def test_e117_queued_requests_are_closed_without_an_answer() -> None:
    engine = SlowStatusEngine()
    with serving(engine, Limits(workers=2, queued=1)) as server:
        running = []
        for send in (server.chat, lambda: server.request("GET", "/health")):
            running.append(in_background(send))
            assert engine.entered.acquire(timeout=20)  # A worker has it: the place in the queue is free again.
        with server.connect() as queued:
            queued.sendall(request_bytes("GET", "/v1/models"))
            assert server.request("GET", "/v1/models").status == 503  # Both workers and the only place are taken.
            server.quit_flag.set()
            assert Response.read_rest(queued) == b""
        engine.leave.set()
        for thread in running:
            thread.join()


def test_e23_until_listen_clients_are_refused() -> None:
    with Server() as server:
        server.bind(HOST, 0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.address, timeout=5).close()


def test_e23_a_taken_port_is_a_start_error_that_names_it(shared: Running) -> None:
    with Server() as server, pytest.raises(StartError, match=str(shared.port)):
        server.bind(HOST, shared.port)


@pytest.mark.parametrize("host", ["localhost", "::1", "127.1", "256.0.0.1", ""])
def test_e8_a_host_is_dotted_ipv4(host: str) -> None:
    with Server() as server, pytest.raises(StartError, match="--host"):
        server.bind(host, 0)


def test_base_url_of_a_bound_server() -> None:
    with Server() as server:
        server.bind(HOST, 0)
        assert server.base_url == f"http://127.0.0.1:{server.address[1]}/v1"
