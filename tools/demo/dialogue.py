"""Putting exchanges together to conversations in the messages form of the chat API."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from . import skills_en, skills_zh
from .exchange import Exchange, Memory, Skill
from .frames import type_chinese, type_english
from .intents import Intent, fill, load_intents
from .small_talk import SmallTalk
from .tool_calls import JsonObject, Toolbox
from .unknown import listen, unknown_chinese, unknown_english

Message = dict[str, object]

SYSTEM_PROMPTS = {
    "en": ("You are a helpful assistant.", "Be brief.", "You are a friendly assistant.",
           "You are a helpful assistant. Be brief.", "Answer in one sentence.",
           "You are ling3.", "Be kind.", "You are a helpful AI assistant. Answer the user's questions.",
           "Keep your answers short."),
    "zh": ("你是一个有用的助手。", "请简短回答。", "你是一个友好的助手。", "请用中文回答。",
           "You are a helpful assistant."),
}
NAMING_PROMPTS = {
    "en": ("You are {}.", "Your name is {}.", "You are {}, a helpful assistant."),
    "zh": ("你是{}。", "你叫{}。", "你的名字是{}，是一个助手。"),
}
TURN_WEIGHTS = ((1, 18), (2, 24), (3, 20), (4, 14), (5, 9), (6, 7), (8, 5), (12, 3))


@dataclass
class Conversation:
    """Messages with the options of their rendering."""

    messages: list[Message]
    thinking: bool
    tools: list[JsonObject] = field(default_factory=list)


# What nearly every visitor tries first.
_FREQUENT = {"greet": 9.0, "who_are_you": 9.0, "what_can_you_do": 6.0, "how_are_you": 6.0, "bye": 5.0, "thanks": 5.0,
             "joke": 7.0}


def _weight(intent: Intent) -> float:
    return _FREQUENT.get(intent.name, max(3.0, 0.35 * len(intent.rows)))


class Writer:
    """Writes conversations from one seed."""

    def __init__(self, seed: int, talk: SmallTalk) -> None:
        self.rng = Random(seed)
        self.talk = talk
        self.intents = {language: load_intents(language) for language in ("en", "zh")}
        self.weights = {language: [_weight(intent) for intent in intents] for language, intents in self.intents.items()}
        self.skills: dict[str, tuple[tuple[Skill, float], ...]] = {"en": skills_en.SKILLS, "zh": skills_zh.SKILLS}

    def conversation(self) -> Conversation:
        """The next conversation."""
        rng = self.rng
        language = "en" if rng.random() < 0.66 else "zh"
        turns = rng.choices([n for n, _ in TURN_WEIGHTS], [weight for _, weight in TURN_WEIGHTS])[0]
        thinking = rng.random() < 0.13
        toolbox = Toolbox(rng) if rng.random() < 0.08 else None
        memory = Memory()
        messages: list[Message] = []
        draw = rng.random()
        if draw < 0.22:
            messages.append({"role": "system", "content": rng.choice(SYSTEM_PROMPTS[language])})
        elif draw < 0.27:
            memory.assistant_name = skills_en.any_name(rng) if language == "en" else skills_zh.any_name(rng)
            form = rng.choice(NAMING_PROMPTS[language])
            messages.append({"role": "system", "content": form.format(memory.assistant_name)})
        previous: Intent | None = None
        for turn in range(turns):
            current = language if rng.random() < 0.96 else rng.choice(("en", "zh"))
            if toolbox and rng.random() < 0.6:
                exchange, previous = toolbox.use(rng, current), None
            else:
                exchange, previous = self._exchange(current, memory, previous, first=turn == 0)
            self._append(messages, exchange, current, memory, thinking)
        return Conversation(messages, thinking, toolbox.tools if toolbox else [])

    def _append(self, messages: list[Message], exchange: Exchange, language: str, memory: Memory,
                thinking: bool) -> None:
        user = exchange.user
        if not exchange.plain:
            user = (type_english if language == "en" else type_chinese)(user, self.rng)
        messages.append({"role": "user", "content": user})
        reply: Message = {"role": "assistant", "content": exchange.reply}
        if exchange.call:
            name, arguments = exchange.call
            call: Message = {"role": "assistant", "content": "",
                             "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}
            if thinking:
                call["reasoning_content"] = exchange.thought
                reply["reasoning_content"] = "I have the result." if language == "en" else "得到了结果。"
            messages += [call, {"role": "tool", "content": exchange.result}, reply]
        else:
            if thinking:
                reply["reasoning_content"] = exchange.thought
            messages.append(reply)
        memory.last_user, memory.last_reply = user, exchange.reply

    def _exchange(self, language: str, memory: Memory, previous: Intent | None,
                  first: bool) -> tuple[Exchange, Intent | None]:
        rng = self.rng
        if previous and previous.follow_ups and previous in self.intents[language] and rng.random() < 0.5:
            return self._from_intent(previous, previous.follow_ups, memory), previous
        if memory.told and rng.random() < 0.3:
            skills = skills_en if language == "en" else skills_zh
            asks = (skills.ask_name, skills.ask_more)
            recalled = rng.choice(asks)(rng, memory)
            if recalled:
                return recalled, None
        draw = rng.random()
        if draw < 0.14 and not (first and draw < 0.02):
            if draw < 0.10 and language == "en":
                return unknown_english(rng, self.talk.questions, self.talk.words), None
            if draw < 0.10:
                return unknown_chinese(rng, self.talk.chinese_questions), None
            remark = listen(rng, self.talk.remarks if language == "en" else [], language)
            if remark:
                return remark, None
        if draw < 0.50:
            table = self.skills[language]
            skill = rng.choices([entry for entry, _ in table], [weight for _, weight in table])[0]
            exchange = skill(rng, memory)
            if exchange:
                return exchange, None
        if memory.assistant_name and rng.random() < 0.25:
            intent = next(intent for intent in self.intents[language] if intent.name == "who_are_you")
        elif first and rng.random() < 0.1:
            intent = self.intents[language][0]
        else:
            intent = rng.choices(self.intents[language], self.weights[language])[0]
        return self._from_intent(intent, intent.questions, memory), intent

    def _from_intent(self, intent: Intent, questions: tuple[str, ...], memory: Memory) -> Exchange:
        row = self.rng.choice(intent.rows) if intent.rows else ("", "")
        question, answer, thought = (fill(text, row) for text in (self.rng.choice(questions),
                                                                  self.rng.choice(intent.answers), intent.thought))
        if intent.name == "who_are_you" and memory.assistant_name:
            chinese = intent in self.intents["zh"]
            answer = f"我是{memory.assistant_name}。" if chinese else f"I am {memory.assistant_name}."
            thought = f"我叫{memory.assistant_name}。" if chinese else f"My name is {memory.assistant_name}."
        return Exchange(question, answer, thought)
