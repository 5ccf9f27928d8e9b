"""The corpus of the demonstration model: what it writes is well formed, honest and repeatable."""

from __future__ import annotations

import json
import re
from random import Random

import pytest

from tools.demo import skills_en, skills_zh
from tools.demo.chat_format import render
from tools.demo.dialogue import Conversation, Writer
from tools.demo.exchange import Memory
from tools.demo.frames import type_english, typing_error
from tools.demo.intents import load_intents, load_lists
from tools.demo.small_talk import SmallTalk, clean
from tools.demo.unknown import FALLBACK_EN, unknown_english

TALK = SmallTalk(["why do ships float?"], ["my day was long and quiet"], ["glabrous"], ["机器有身体吗"])


def conversations(count: int, seed: int = 1) -> list[Conversation]:
    writer = Writer(seed, TALK)
    return [writer.conversation() for _ in range(count)]


def text(conversation: Conversation) -> str:
    return render(conversation.messages, conversation.tools, conversation.thinking)


def test_same_seed_writes_the_same_conversations() -> None:
    assert [text(c) for c in conversations(50)] == [text(c) for c in conversations(50)]


def test_other_seed_writes_other_conversations() -> None:
    assert [text(c) for c in conversations(50)] != [text(c) for c in conversations(50, seed=2)]


def test_no_message_holds_a_marker_or_an_unfilled_slot() -> None:
    contents = [str(message["content"]) for c in conversations(600) for message in c.messages]
    assert [line for line in contents if re.search(r"<\w|\|>|</|\{[a-zA-Z]*\}", line)] == []


def test_every_turn_has_a_question_and_an_answer() -> None:
    for conversation in conversations(500):
        roles = [str(message["role"]) for message in conversation.messages if message["role"] != "system"]
        assert roles[0] == "user" and roles[-1] == "assistant"
        assert not re.search("user user|assistant user user", " ".join(roles))


def test_thoughts_are_there_exactly_when_thinking_is_on() -> None:
    for conversation in conversations(500):
        answers = [message for message in conversation.messages if message["role"] == "assistant"]
        assert {"reasoning_content" in message for message in answers} == {conversation.thinking}


def test_calls_name_an_offered_tool() -> None:
    for conversation in conversations(600):
        offered = json.dumps(conversation.tools)
        for message in conversation.messages:
            for call in message.get("tool_calls", []):  # type: ignore[attr-defined]
                assert f'"name": "{call["function"]["name"]}"' in offered


@pytest.mark.parametrize("skills", [skills_en, skills_zh])
def test_a_told_name_is_recalled(skills: object) -> None:
    memory = Memory()
    skills.tell_name(Random(3), memory)  # type: ignore[attr-defined]
    assert memory.told["name"] in skills.ask_name(Random(4), memory).reply  # type: ignore[attr-defined]


def test_a_name_never_told_is_not_invented() -> None:
    exchanges = [skills_en.ask_name(Random(seed), Memory()) for seed in range(100)]
    replies = {exchange.reply for exchange in exchanges if exchange}
    assert replies == {"You have not told me your name yet. What is it?"}


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_right(seed: int) -> None:
    exchange = skills_en.sums(Random(seed), Memory())
    assert exchange is not None
    left, right = exchange.reply.rstrip(".").split(" = ")
    assert re.fullmatch(r"\d+ [+*-] \d+", left)
    assert eval(left) == int(right)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_intents_are_complete(language: str) -> None:
    for intent in load_intents(language):
        assert intent.questions and intent.answers and intent.thought, intent.name
        slots = "".join((*intent.questions, *intent.follow_ups, *intent.answers))
        assert bool(re.search(r"{[aAb]}", slots)) == bool(intent.rows), intent.name


def test_a_table_row_answers_in_the_words_of_the_file() -> None:
    capital = next(intent for intent in load_intents("en") if intent.name == "capital")
    assert ("France", "Paris") in capital.rows and capital.answers == ("The capital of {a} is {b}.",)


def test_unlisted_countries_are_not_in_the_table_of_capitals() -> None:
    capital = next(intent for intent in load_intents("en") if intent.name == "capital")
    assert not {country for country, _ in capital.rows} & set(load_lists("en")["unknown_countries"])


def test_questions_out_of_reach_are_declined() -> None:
    replies = {unknown_english(Random(seed), [], []).reply for seed in range(200)}
    assert FALLBACK_EN in replies and all("do not know" in reply for reply in replies)


@pytest.mark.parametrize("line", [
    "call me at five five 5", "write to me@home.org please", "what the fuck is that", "I live in Springfield now",
    "see http://a.b for more", "ok", "I study at the church",
])
def test_small_talk_with_private_or_coarse_parts_is_dropped(line: str) -> None:
    assert clean(line) == ""


def test_small_talk_keeps_a_plain_line() -> None:
    assert clean("what kind of  biscuits??") == "what kind of biscuits?"


def test_a_typing_error_changes_one_place_only() -> None:
    for seed in range(50):
        typed = typing_error("where is the red lamp", Random(seed))
        assert abs(len(typed) - 21) <= 1 and sorted(set(typed) - set("where is the red lamp")) == []


def test_typed_lines_keep_the_words_most_of_the_time() -> None:
    typed = [type_english("what is the capital of France", Random(seed)).lower() for seed in range(200)]
    assert sum("what is the capital of france" in line for line in typed) > 170
