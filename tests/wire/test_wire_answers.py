"""Chat answers: the shape of the whole one, the order of the streamed one, and what becomes of errors."""

from __future__ import annotations

import json
import select
from typing import Any

import pytest
from fake_engine import Busy, Hold, calling, content, reasoning
from wire import CHAT, USER_HI, Response, Running, request_bytes

from ling3.errors import RequestError

SECRET = "the model file is at a private place"


def stream(server: Running, **fields: Any) -> Response:
    return server.chat(stream=True, **fields)


def deltas(answer: Response) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in answer.chunks if chunk["choices"]]


def test_e71_completion(server: Running) -> None:
    answer = server.chat().json()
    assert answer == {
        "id": answer["id"],
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "ling3-tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello there"},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "mindnano_metrics": {"cache_status": "miss"},
    }
    assert answer["id"].startswith("chatcmpl-1700000000-")


def test_d8_completion_with_reasoning(server: Running) -> None:
    server.engine.play(reasoning("sum"), content("4"))
    message = server.chat().json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "4", "reasoning_content": "sum"}


def test_completion_with_tool_calls_has_content_and_ids(server: Running) -> None:
    server.engine.play(calling("f", '{"a":1}'), calling("g", "{}"), finish_reason="tool_calls")
    answer = server.chat().json()
    choice = answer["choices"][0]
    number = answer["id"].rpartition("-")[2]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == ""
    assert choice["message"]["tool_calls"] == [
        {"id": f"call_1700000000_{number}_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": f"call_1700000000_{number}_1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_e72_stream_head(server: Running) -> None:
    assert stream(server).head == (
        b"HTTP/1.1 200 OK\r\n"
        b"Content-Type: text/event-stream; charset=utf-8\r\n"
        b"Cache-Control: no-cache\r\n"
        b"X-Accel-Buffering: no\r\n"
        b"Connection: close"
    )


def test_e73_order_and_exact_bytes(server: Running) -> None:
    answer = stream(server)
    common = (
        f'{{"id":"{answer.chunks[0]["id"]}","object":"chat.completion.chunk","created":1700000000,'
        '"model":"ling3-tiny","choices":['
    )
    frames = [
        common + '{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null,"logprobs":null}]}',
        common + '{"index":0,"delta":{"content":"Hello"},"finish_reason":null,"logprobs":null}]}',
        common + '{"index":0,"delta":{"content":" there"},"finish_reason":null,"logprobs":null}]}',
        common + '{"index":0,"delta":{},"finish_reason":"stop","logprobs":null}]}',
        common + '],"mindnano_metrics":{"cache_status":"miss"}}',
        "[DONE]",
    ]
    assert answer.frames == frames


def test_e73_usage_is_null_until_the_metrics_chunk(server: Running) -> None:
    *chunks, last = stream(server, stream_options={"include_usage": True}).chunks
    assert [chunk["usage"] for chunk in chunks] == [None] * 4
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert last["choices"] == []
    assert last["mindnano_metrics"] == {"cache_status": "miss"}


def test_e73_no_usage_where_none_was_asked_for(server: Running) -> None:
    for options in (None, {}, {"include_usage": False}):
        assert all("usage" not in chunk for chunk in stream(server, stream_options=options).chunks)


def test_b1_every_chunk_has_the_same_identity(server: Running) -> None:
    server.engine.play(*[content(str(number)) for number in range(20)])
    chunks = stream(server).chunks
    assert len(chunks) == 23
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1


def test_b2_the_role_comes_first_and_once(server: Running) -> None:
    first, *others = deltas(stream(server))
    assert first == {"role": "assistant", "content": ""}
    assert all("role" not in delta for delta in others)


def test_b3_finish_stands_alone_after_the_content(server: Running) -> None:
    server.engine.play(content("a"), content("b"), content("c"), finish_reason="length")
    answer = stream(server, max_tokens=3)
    assert deltas(answer)[1:] == [{"content": "a"}, {"content": "b"}, {"content": "c"}, {}]
    assert answer.chunks[-2]["choices"][0]["finish_reason"] == "length"


def test_b4_only_the_metrics_chunk_has_no_choices(server: Running) -> None:
    assert [len(chunk["choices"]) for chunk in stream(server).chunks] == [1, 1, 1, 1, 0]


def test_b5_finish_reason_is_present_and_null_before_the_end(server: Running) -> None:
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in stream(server).chunks[:-1]]
    assert reasons == [None, None, None, "stop"]


def test_streamed_reasoning_and_tool_calls(server: Running) -> None:
    server.engine.play(
        reasoning("so"), content("Let me see."), calling("f", '{"a":1}'), calling("g", "{}"), finish_reason="tool_calls"
    )
    answer = stream(server)
    number = answer.chunks[0]["id"].rpartition("-")[2]
    assert deltas(answer)[1:] == [
        {"reasoning_content": "so"},
        {"content": "Let me see."},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": f"call_1700000000_{number}_0",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a":1}'},
                }
            ]
        },
        {
            "tool_calls": [
                {
                    "index": 1,
                    "id": f"call_1700000000_{number}_1",
                    "type": "function",
                    "function": {"name": "g", "arguments": "{}"},
                }
            ]
        },
        {},
    ]
    assert answer.chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_text_of_every_kind_survives(server: Running) -> None:
    text = '✅\ufffd 😀 \u2028 "quoted" \\ \n\n data: x \x00'
    server.engine.play(content(text))
    assert deltas(stream(server))[1] == {"content": text}
    assert server.chat().json()["choices"][0]["message"]["content"] == text


def test_b12_each_piece_is_sent_as_it_is_made(server: Running) -> None:
    holds = [Hold(), Hold()]
    server.engine.play(content("one"), holds[0], content("two"), holds[1])
    with server.connect() as sock:
        sock.sendall(request_bytes("POST", CHAT, json.dumps({"messages": USER_HI, "stream": True}).encode()))
        seen = b""
        for hold, text in zip(holds, (b'"one"', b'"two"'), strict=True):
            while text not in seen:
                seen += sock.recv(4096)
            assert not select.select([sock], [], [], 0)[0]
            hold.release.set()
        assert b"[DONE]" in Response.read_rest(sock)


@pytest.mark.parametrize("streamed", [False, True])
def test_e72_a_refusal_before_the_head_is_plain_http(server: Running, streamed: bool) -> None:
    server.engine.play(refusal=RequestError(400, "context_length_exceeded", "4097 of 4096", "messages"))
    answer = server.chat(stream=streamed)
    assert answer.status == 400
    assert answer.error == {
        "message": "4097 of 4096",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }


@pytest.mark.parametrize("streamed", [False, True])
def test_a12_busy_is_429_with_the_wait_that_the_engine_expects(server: Running, streamed: bool) -> None:
    server.engine.play(refusal=Busy())
    answer = server.chat(stream=streamed)
    assert (answer.status, answer.error["code"], answer.error["type"]) == (429, "engine_busy", "rate_limit_error")
    assert answer.headers["retry-after"] == "7"


@pytest.mark.parametrize("streamed", [False, True])
def test_e52_an_unexpected_error_is_500_without_internals(
    server: Running, streamed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    server.engine.play(refusal=ValueError(SECRET))
    answer = server.chat(stream=streamed)
    assert (answer.status, answer.error["code"], answer.error["type"]) == (500, "inference_error", "server_error")
    assert SECRET.encode() not in answer.body
    logged = capfd.readouterr().err
    assert "inference_error: POST /v1/chat/completions" in logged
    assert SECRET in logged
    server.engine.play()
    assert server.chat().status == 200


def test_e75_an_unexpected_error_in_a_stream_is_an_event(server: Running, capfd: pytest.CaptureFixture[str]) -> None:
    server.engine.play(content("Hel"), ValueError(SECRET))
    answer = stream(server)
    assert answer.status == 200
    *_, last = answer.chunks
    assert last["error"]["code"] == "inference_error"
    assert SECRET.encode() not in answer.body
    assert answer.chunks[0]["id"] in capfd.readouterr().err


def test_e52_a_refusal_in_a_stream_is_an_event(server: Running) -> None:
    server.engine.play(content("Hel"), RequestError(503, "engine_failed", "the engine failed"))
    assert stream(server).chunks[-1] == {
        "error": {"message": "the engine failed", "type": "server_error", "param": None, "code": "engine_failed"}
    }


def test_an_answer_that_cannot_be_written_is_500(server: Running, capfd: pytest.CaptureFixture[str]) -> None:
    server.engine.metrics = {"broken": object()}
    assert server.chat().status == 500
    assert stream(server).chunks[-1]["error"]["code"] == "inference_error"
    assert "Traceback" in capfd.readouterr().err


def test_e74_a_canceled_answer_is_409_and_not_to_be_repeated(server: Running) -> None:
    server.engine.play(content("Hel"), finish_reason="canceled")
    answer = server.chat()
    assert (answer.status, answer.error["code"]) == (409, "request_canceled")
    assert answer.headers["x-should-retry"] == "false"


def test_e74_a_canceled_stream_ends_with_one_error_event(server: Running) -> None:
    server.engine.play(content("Hel"), finish_reason="canceled")
    *chunks, last = stream(server).chunks
    said = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert said == [{"role": "assistant", "content": ""}, {"content": "Hel"}]
    assert last["error"]["code"] == "request_canceled"
