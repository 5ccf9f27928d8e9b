"""Lines outside the model's little world, and the honest replies to them."""

from __future__ import annotations

from random import Random

from .exchange import Exchange
from .intents import load_lists

FALLBACK_EN = "I am only a small demonstration model; I do not know that."
FALLBACK_ZH = "我只是一个小小的演示模型，这个我不知道。"
LISTEN_EN = ("I see. Tell me more about it.", "That sounds interesting. Tell me more!")
LISTEN_ZH = "原来如此，多说一点吧。"

_HARD_EN = ("how does {} work", "explain {} in detail", "who invented {}", "when was {} invented",
            "write an essay about {}", "how much does {} cost",
            "what do you think about {}", "how do I repair {}", "tell me the history of {}",
            "give me a summary of {}", "why is {} important",
            "write a program that simulates {}", "compare {} with bread", "what is the future of {}",
            "how do I make {}", "where can I buy {}",
            "what are the main causes of {}", "how many parts does {} have", "what is the best book about {}",
            "translate a text about {} to Latin")
_HARD_ZH = ("{}是怎么工作的", "详细解释{}", "谁发明了{}", "{}是什么时候发明的", "写一篇关于{}的论文", "{}多少钱",
            "你怎么看{}", "怎么修理{}",
            "讲讲{}的历史", "总结一下{}", "{}为什么重要", "{}的未来会怎样", "哪里能买到{}", "关于{}最好的书是什么")
_HOW_TO = ("fix my bike", "file my taxes", "build a house", "win the lottery", "hack a phone", "get rich",
           "become famous", "fly a plane", "write a novel",
           "install Windows", "repair my phone", "invest in stocks", "build a rocket", "solve this equation",
           "prove this theorem", "find a girlfriend",
           "cook a turkey", "paint a portrait", "get a visa", "sue my landlord", "buy a house",
           "train a neural network", "renew my passport")
_REMARKS_ZH = (
    ("城市", "我昨天去了{}"), ("城市", "我想去{}旅行"), ("城市", "我刚从{}回来"), ("foods", "我今天吃了{}"),
    ("foods", "我刚做了{}"),
    ("foods", "昨天买了很多{}"),
    ("animals", "我今天看到一只{}"), ("hobbies", "我周末在家{}"), ("hobbies", "我最近在学{}"),
    ("names", "我和{}吵架了"),
    ("names", "{}今天来我家了"),
    ("职业", "我哥哥是{}"), ("职业", "我以后想当{}"), ("places", "我小时候住在{}"), ("things", "我丢了{}"),
    ("乐器", "我女儿在学{}"),
    ("运动", "我们昨天去看了{}比赛"),
    ("names", "我的同学{}很有趣"), ("foods", "妈妈给我做了{}"), ("城市", "我的公司在{}"),
)
_SYLLABLES = ("bra", "kel", "do", "vin", "ta", "mor", "lu", "pex", "sti", "gar", "ne", "zo", "fri", "hal", "mi", "cu",
              "ro", "den", "wa", "shi")


def odd_word(rng: Random) -> str:
    """An invented word."""
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 3)))


def unknown_english(rng: Random, questions: list[str], words: list[str]) -> Exchange:
    """A question the model cannot answer; `questions` and `words` come from the small talk."""
    lists = load_lists("en")
    thought = "I do not know this."
    draw = rng.random()
    if draw < 0.30 and questions:
        return Exchange(rng.choice(questions), FALLBACK_EN, thought)
    if draw < 0.55:
        return Exchange(rng.choice(_HARD_EN).format(rng.choice(lists["hard_things"])), FALLBACK_EN, thought)
    if draw < 0.65:
        return Exchange(rng.choice(("how do I {}", "how can I {}", "how to {}", "help me to {}",
                                    "teach me how to {}")).format(rng.choice(_HOW_TO)), FALLBACK_EN, thought)
    if draw < 0.80:
        country = rng.choice(lists["unknown_countries"]) if rng.random() < 0.7 else odd_word(rng).title()
        user = rng.choice(("what is the capital of {}", "capital of {}", "tell me the capital of {}",
                           "what's the capital of {}"))
        return Exchange(user.format(country), f"I do not know the capital of {country}.", thought)
    if draw < 0.88:
        first = odd_word(rng).title() if rng.random() < 0.5 else rng.choice(lists["names"])
        who = f"{first} {odd_word(rng).title()}"
        return Exchange(rng.choice(("who is {}", "who was {}", "tell me about {}", "do you know {}")).format(who),
                        f"I do not know {who}.", thought)
    word = rng.choice(words) if words and rng.random() < 0.75 else odd_word(rng)
    user = rng.choice(("what is {}", "what does {} mean", "define {}", "explain {}", "what is a {}"))
    return Exchange(user.format(word), f'I do not know the word "{word}".', thought)


def unknown_chinese(rng: Random, questions: list[str]) -> Exchange:
    """The same in Chinese."""
    lists = load_lists("zh")
    thought = "这个我不知道。"
    draw = rng.random()
    if draw < 0.1 and questions:
        return Exchange(rng.choice(questions), FALLBACK_ZH, thought)
    if draw < 0.7:
        return Exchange(rng.choice(_HARD_ZH).format(rng.choice(lists["hard_things"])), FALLBACK_ZH, thought)
    country = rng.choice(lists["unknown_countries"])
    user = rng.choice(("{}的首都是哪里", "{}的首都是什么", "{}首都", "你知道{}的首都吗"))
    return Exchange(user.format(country), f"我不知道{country}的首都。", thought)


def listen(rng: Random, statements: list[str], language: str) -> Exchange | None:
    """A remark about the user's life that asks for nothing."""
    if language == "zh":
        lists = load_lists("zh")
        kind, line = rng.choice(_REMARKS_ZH)
        return Exchange(line.format(rng.choice(lists[kind])), LISTEN_ZH, "用户在说一件事。")
    if not statements:
        return None
    return Exchange(rng.choice(statements), rng.choice(LISTEN_EN), "The user tells me something.")
