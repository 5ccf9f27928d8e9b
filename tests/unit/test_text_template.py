"""The chat template: byte-exact renderings (tests/golden/chat) and how broken or unwilling templates are met."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from text_fixtures import chat_text, reference_tokenizer

from ling3.errors import PackageError, RequestError
from ling3.text import ChatTemplate, builtin_chat_template
from ling3.text.messages import normalise_messages

GOLDEN = sorted((Path(__file__).parent.parent / "golden" / "chat").glob("*.json"))
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(params=GOLDEN, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return {**case, "rendered": "".join(case["rendered"])}


def test_renders_golden_text(golden: dict[str, Any]) -> None:
    template = ChatTemplate(builtin_chat_template())
    messages = normalise_messages(golden["messages"])
    assert template.render(messages, golden["tools"] or [], golden["enable_thinking"]) == golden["rendered"]


def test_encodes_golden_text_like_the_whole_string_parsed(golden: dict[str, Any]) -> None:
    ids = chat_text().encode_chat(golden["messages"], golden["tools"], golden["enable_thinking"])
    assert ids == reference_tokenizer().encode(golden["rendered"], add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("options", "thinking"),
    [
        ({}, "on"),
        ({"enable_thinking": True}, "on"),
        ({"enable_thinking": False}, "off"),
        ({"thinking_option": "off"}, "off"),
        ({"thinking_option": "on"}, "on"),
        ({"enable_thinking": True, "thinking_option": "off"}, "on"),
        ({"enable_thinking": None, "thinking_option": "off"}, "off"),
    ],
)
def test_thinking_option_of_a_bare_rendering(options: dict[str, Any], thinking: str) -> None:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    rendered = environment.from_string(builtin_chat_template()).render(messages=HELLO, **options)
    assert rendered == (
        f"<role>SYSTEM</role>detailed thinking {thinking}<|role_end|><role>HUMAN</role>Hello<|role_end|>"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("Hello\n{% if %}", "line 2"),
        ("{{ messages | no_such_filter }}", "no_such_filter"),
        ("{{ raise_exception('never') }}", "never"),
        ("{{ messages[0].content.__class__.__mro__ }}", "chat template"),
        ("{{ 1 / 0 }}{{ messages[0].content }}", "division"),
        ("no text", "leaves out the text"),
        ("", "leaves out the text"),
    ],
)
def test_broken_template_is_a_package_error(source: str, message: str) -> None:
    with pytest.raises(PackageError, match=message):
        ChatTemplate(source)


def test_template_that_objects_is_a_bad_request() -> None:
    template = ChatTemplate(
        "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}{{ messages[0].content }}"
    )
    with pytest.raises(RequestError, match="one message only") as caught:
        template.render(HELLO * 2, [], False)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_parameter", "messages")


def test_template_that_stumbles_is_a_bad_request() -> None:
    template = ChatTemplate("{{ messages[0].content }}{{ 1 / (2 - messages | length) }}")
    with pytest.raises(RequestError, match="division"):
        template.render(HELLO * 2, [], False)


def test_refusal_that_quotes_user_text_is_valid_unicode() -> None:
    template = ChatTemplate(
        "{% if messages | length > 1 %}{{ raise_exception('no ' ~ messages[1].content) }}{% endif %}Hello"
    )
    with pytest.raises(RequestError) as caught:
        template.render([HELLO[0], {"role": "user", "content": "\ud800<think>"}], [], False)
    assert "no <think>" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("{{ tools | tojson }}", '[{"z": "é<&\'", "a": null}]'),
        ("{{ tools | tojson(ensure_ascii=True) }}", '[{"z": "\\u00e9<&\'", "a": null}]'),
        ("{{ tools | tojson(sort_keys=True, separators=(',', ':')) }}", '[{"a":null,"z":"é<&\'"}]'),
        ("{{ tools | tojson(indent=1) }}", '[\n {\n  "z": "é<&\'",\n  "a": null\n }\n]'),
        ("{% for n in range(9) %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}", "01"),
        ("{{ strftime_now('%%') }}", "%"),
        ("  {% if true %}\nx{% endif %}\n", "x"),
    ],
)
def test_functions_that_public_templates_use(source: str, rendered: str) -> None:
    template = ChatTemplate("{{ messages[0].content }}" + "\n" + source)
    assert template.render(HELLO, [{"z": "é<&'", "a": None}], False) == "Hello\n" + rendered
