"""Which path and method gets what, and the two answers about the server itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_engine import FakeEngine
from wire import CHAT, Running, request_bytes, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(FakeEngine()) as running:
        yield running


def test_e50_json_head_has_type_length_and_close_only(server: Running) -> None:
    answer = server.request("GET", "/v1/models")
    assert answer.head == (
        b"HTTP/1.1 200 OK\r\n"
        b"Content-Type: application/json; charset=utf-8\r\n"
        b"Content-Length: %d\r\n"
        b"Connection: close" % len(answer.body)
    )


def test_e57_models(server: Running) -> None:
    assert server.request("GET", "/v1/models").json() == {
        "object": "list",
        "data": [
            {
                "id": "ling3-tiny",
                "object": "model",
                "created": 0,
                "owned_by": "mindnano",
                "context_length": 4096,
            }
        ],
    }


def test_e56_health(server: Running) -> None:
    assert server.request("GET", "/health").json() == {
        "status": "ok",
        "active": False,
        "device": {"npu": "absent"},
        "context_length": 4096,
        "initialization_ms": 12.5,
        "warmup_ms": 3.5,
        "weight_memory": {"source_weight_pagecache_resident_mib": 1.0},
        "weight_format": {"source": "custom_per_channel_w4", "execution": "W4A8"},
        "mindnano_integration_version": 5,
        "capabilities": {"top_k": True, "repeat_penalty": True, "enable_thinking": True},
        "generation": {"state": "idle", "sequence": 0},
    }


def test_root_says_where_the_api_is(server: Running) -> None:
    assert server.request("GET", "/").json()["base_url"] == "http://board:9091/v1"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/",
        "/v1//models",
        "//v1///models//",
        "/v1/models?limit=3",
        "/v1/models/?a=/b",
        "/v1/models#x",
        "http://board:9091/v1/models",
        "HTTP://board/v1/models?x",
    ],
)
def test_a7_forms_of_a_path(server: Running, path: str) -> None:
    assert server.request("GET", path).json()["object"] == "list"


def test_a7_chat_with_a_trailing_slash(server: Running) -> None:
    assert server.request("POST", CHAT + "/", b"{").error["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/chat/completions"), ("GET", "/models"), ("GET", "/v1/Models"), ("GET", "/v1%2Fmodels"), ("GET", "/v2")],
)
def test_a8_unknown_path_names_the_base_url(server: Running, method: str, path: str) -> None:
    answer = server.request(method, path)
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert answer.error["type"] == "invalid_request_error"
    assert "http://board:9091/v1" in answer.error["message"]


@pytest.mark.parametrize("host", ["a b", "<script>", "a/b@c", ""])
def test_a_strange_host_is_not_repeated(server: Running, host: str) -> None:
    answer = server.raw(f"GET /nowhere HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.error["message"].endswith("is /v1")


def test_a_long_unknown_path_is_shown_shortened(server: Running) -> None:
    assert len(server.request("GET", "/" + "x" * 5000).error["message"]) < 300


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "OPTIONS, POST"),
        ("HEAD", CHAT, "OPTIONS, POST"),
        ("POST", "/health", "GET, HEAD, OPTIONS"),
        ("DELETE", "/v1/models", "GET, HEAD, OPTIONS"),
    ],
)
def test_wrong_method_is_405_with_allow(server: Running, method: str, path: str, allow: str) -> None:
    answer = server.request(method, path)
    assert answer.status == 405
    assert answer.headers["allow"] == allow.lower()


def test_wrong_method_says_so(server: Running) -> None:
    error = server.request("PUT", "/health").error
    assert (error["code"], error["type"]) == ("method_not_allowed", "invalid_request_error")


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models"])
def test_a14_head_has_the_head_of_get_and_no_body(server: Running, path: str) -> None:
    head, get = server.request("HEAD", path), server.request("GET", path)
    assert head.head == get.head
    assert head.body == b""


def test_head_of_an_unknown_path_has_no_body(server: Running) -> None:
    answer = server.request("HEAD", "/nowhere")
    assert (answer.status, answer.body) == (404, b"")


def test_a6_preflight(server: Running) -> None:
    answer = server.request(
        "OPTIONS",
        CHAT,
        None,
        "Origin: https://chat.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization,content-type,x-stainless-os",
    )
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
    assert "post" in answer.headers["access-control-allow-methods"]
    assert "content-length" not in answer.headers


def test_a_preflight_never_repeats_what_is_no_header_name(server: Running) -> None:
    answer = server.request("OPTIONS", CHAT, None, "Origin: null", "Access-Control-Request-Headers: a(b)")
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type"


def test_answers_to_a_browser_may_be_read_by_its_page(server: Running) -> None:
    for answer in (
        server.request("GET", "/v1/models", None, "Origin: http://localhost:3000"),
        server.request("GET", "/nowhere", None, "Origin: http://localhost:3000"),
        server.request("POST", CHAT, b'{"messages":[{"role":"user","content":"hi"}],"stream":true}', "Origin: null"),
    ):
        assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("value", ["Bearer x", "Bearer", "Basic dTpw", ""])
def test_a11_any_key_is_accepted_where_none_is_configured(server: Running, value: str) -> None:
    assert server.raw(request_bytes("GET", "/v1/models", None, f"Authorization: {value}")).status == 200
