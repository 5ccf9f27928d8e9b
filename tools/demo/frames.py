"""Making written lines look like typed ones: case, punctuation, polite words and typing errors."""

from __future__ import annotations

from random import Random

_ENGLISH_BEFORE = ("hey, ", "so ", "ok, ", "please ", "well, ", "um, ", "hi, ", "and ", "now ", "hello, ", "um ",
                   "oh, ")
_ENGLISH_QUESTION_BEFORE = (
    "can you tell me ", "could you tell me ", "please tell me ", "tell me, ", "do you know ", "quick question: ",
    "I have a question: ", "I want to know ", "say, ", "hey, can you tell me ", "one question: ", "I wonder ",
)
_ENGLISH_AFTER = (" please", ", please", " thanks", " for me", " now", ", can you", " my friend", ", thank you",
                  " ling")
_QUESTION_WORDS = ("what", "who", "where", "which", "how", "why", "when", "is ", "are ", "do ", "does ", "can ",
                   "will ")
_CHINESE_BEFORE = ("请问", "请问，", "那个，", "嗯，", "你好，", "我想问", "我想知道", "那", "喂，", "请")
_CHINESE_AFTER = ("呀", "呢", "啊", "谢谢", "，谢谢", "，可以吗", "吧")


def typing_error(text: str, rng: Random) -> str:
    """One letter swapped, dropped or doubled inside a word; short texts stay as they are."""
    spots = [i for i in range(1, len(text) - 1) if text[i].isascii() and text[i].isalpha() and text[i + 1].isalpha()]
    if len(spots) < 4:
        return text
    at = rng.choice(spots)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    if kind == 1:
        return text[:at] + text[at + 1 :]
    return text[: at + 1] + text[at:]


def type_english(text: str, rng: Random) -> str:
    """An English line as somebody might type it."""
    question = text.lower().startswith(_QUESTION_WORDS)
    draw = rng.random()
    if draw < 0.10:
        text = rng.choice(_ENGLISH_BEFORE) + text
    elif draw < 0.20 and question:
        text = rng.choice(_ENGLISH_QUESTION_BEFORE) + text
    elif draw < 0.26:
        text = text + rng.choice(_ENGLISH_AFTER)
    if rng.random() < 0.07:
        text = typing_error(text, rng)
    ending = text[-1:].isalnum()
    style = rng.random()
    if style < 0.45:
        text = text[:1].upper() + text[1:]
        if ending:
            text += "?" if question else rng.choice((".", "!", ""))
    elif style < 0.60:
        text = text[:1].upper() + text[1:]
    elif style < 0.80:
        text = text.lower()
        if ending and rng.random() < 0.5:
            text += "?" if question else rng.choice((".", "!", "..."))
    elif style < 0.98:
        if ending and rng.random() < 0.5:
            text += "?" if question else "."
    else:
        text = text.upper()
    return text


def type_chinese(text: str, rng: Random) -> str:
    """A Chinese line as somebody might type it."""
    draw = rng.random()
    if draw < 0.12 and len(text) > 3:
        text = rng.choice(_CHINESE_BEFORE) + text
    elif draw < 0.20 and len(text) > 3:
        text = text + rng.choice(_CHINESE_AFTER)
    if rng.random() < 0.6 and not text.endswith(("？", "。", "！")):
        question = any(mark in text for mark in ("什么", "吗", "哪", "谁", "几", "怎", "如何", "呢", "多少", "啥"))
        text += "？" if question else rng.choice(("。", "！", ""))
    return text
