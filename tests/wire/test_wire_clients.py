"""The clients that people use, unchanged: http.client, requests, curl, and OpenAI's own package."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import requests
from fake_engine import Hold, calling, content, reasoning
from openai.types.chat import ChatCompletionUserMessageParam
from wire import CHAT, HOST, USER_HI, Running

HI: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hi"}]
MODEL = "ling3-tiny"


@pytest.fixture
def sdk(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=10) as client:
        yield client


def test_http_client(server: Running) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
    for _ in range(3):  # It opens a new connection for each, since every answer says close.
        connection.request("POST", CHAT, json.dumps({"messages": USER_HI}))
        with connection.getresponse() as answer:
            assert answer.status == 200
            assert json.load(answer)["choices"][0]["message"]["content"] == "Hello there"
    connection.close()


def test_http_client_sends_an_iterable_chunked(server: Running) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
    body = json.dumps({"messages": USER_HI}).encode()
    connection.request("POST", CHAT, iter([body[:7], body[7:]]), encode_chunked=True)
    with connection.getresponse() as answer:
        assert answer.status == 200
    connection.close()


def test_requests(server: Running) -> None:
    with requests.Session() as session:
        answer = session.post(server.url + CHAT, json={"messages": USER_HI}, timeout=10)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello there"
        assert session.get(server.url + "/v1/models", timeout=10).json()["data"][0]["id"] == MODEL
        assert session.head(server.url + "/health", timeout=10).status_code == 200


def test_requests_streams_lines(server: Running) -> None:
    body = json.dumps({"messages": USER_HI, "stream": True})
    with requests.post(server.url + CHAT, body, stream=True, timeout=10) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert len(lines) == 6
    assert lines[-1] == b"data: [DONE]"


def curl(*arguments: str) -> str:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is not installed")
    return subprocess.run(
        [program, "-sS", "--max-time", "10", *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_curl_streams(server: Running) -> None:
    body = json.dumps({"messages": USER_HI, "stream": True})
    assert curl("-N", "-d", body, server.url + CHAT).endswith("data: [DONE]\n\n")


def test_a1_curl_sends_chunked(server: Running) -> None:
    body = json.dumps({"messages": USER_HI})
    answer = curl("-H", "Transfer-Encoding: chunked", "-d", body, server.url + CHAT)
    assert json.loads(answer)["object"] == "chat.completion"


def test_a4_curl_expects_100_for_a_large_upload(server: Running, tmp_path: Path) -> None:
    upload = tmp_path / "body.json"
    upload.write_text(json.dumps({"messages": [{"role": "user", "content": "x" * 2_000_000}]}))
    trace = tmp_path / "trace"
    answer = curl(
        "-H", "Expect: 100-continue", "--trace-ascii", str(trace), "--data-binary", f"@{upload}", server.url + CHAT
    )
    assert json.loads(answer)["object"] == "chat.completion"
    assert "HTTP/1.1 100" in trace.read_text()


def test_a14_curl_head(server: Running) -> None:
    for path in ("/", "/health", "/v1/models"):
        assert curl("-I", server.url + path).startswith("HTTP/1.1 200 OK")


def test_sdk_completion(server: Running, sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model=MODEL, messages=HI, max_completion_tokens=4, temperature=0.5)
    assert answer.choices[0].message.content == "Hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5
    assert server.engine.requests[0].max_tokens == 4


def test_sdk_stream_with_usage(server: Running, sdk: openai.OpenAI) -> None:
    stream = sdk.chat.completions.create(model=MODEL, messages=HI, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello there"
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices] == [None, None, None, "stop"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2


def test_sdk_stream_helper_assembles_the_whole(server: Running, sdk: openai.OpenAI) -> None:
    server.engine.play(content("Let me see."), calling("f", '{"a":1}'), finish_reason="tool_calls")
    with sdk.chat.completions.stream(model=MODEL, messages=HI) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.name == "f"
    assert choice.message.tool_calls[0].function.arguments == '{"a":1}'


def test_sdk_answers_can_be_sent_back(server: Running, sdk: openai.OpenAI) -> None:
    server.engine.play(reasoning("so"), calling("f", '{"a":1}'), finish_reason="tool_calls")
    message = sdk.chat.completions.create(model=MODEL, messages=HI).choices[0].message
    assert message.tool_calls is not None
    back = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "ok"}
    history = [*HI, message, back]
    sdk.chat.completions.create(model=MODEL, messages=history)  # type: ignore[arg-type]
    turn = server.engine.requests[-1].messages[1]
    assert turn["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert turn["reasoning_content"] == "so"


def test_sdk_models(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == [MODEL]


def test_sdk_raises_its_own_errors(server: Running, sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as wrong_model:
        sdk.chat.completions.create(model="gpt-4o-mini", messages=HI)
    assert wrong_model.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        sdk.chat.completions.create(model=MODEL, messages=HI, n=2)
    assert bad.value.param == "n"


def test_sdk_hears_of_an_error_inside_a_stream(server: Running, sdk: openai.OpenAI) -> None:
    server.engine.play(content("Hel"), finish_reason="canceled")
    with pytest.raises(openai.APIError) as canceled:
        list(sdk.chat.completions.create(model=MODEL, messages=HI, stream=True))
    assert canceled.value.code == "request_canceled"


def test_sdk_does_not_repeat_a_canceled_request(server: Running, sdk: openai.OpenAI) -> None:
    server.engine.play(finish_reason="canceled")
    with pytest.raises(openai.ConflictError):
        sdk.with_options(max_retries=2).chat.completions.create(model=MODEL, messages=HI)
    assert len(server.engine.requests) == 1


def test_sdk_timeout_leaves_no_orphan(server: Running, sdk: openai.OpenAI) -> None:
    server.engine.play(Hold())
    with pytest.raises(openai.APITimeoutError):
        sdk.with_options(timeout=1).chat.completions.create(model=MODEL, messages=HI)
    assert server.engine.wait_idle()
    assert server.engine.outcomes == ["canceled"]
