"""Chinese skills: memory, copying, arithmetic, lists, stories and poems."""

from __future__ import annotations

from random import Random

from .exchange import SKIP_UNTOLD, Exchange, Memory, Skill
from .intents import load_lists
from .storybook import POEMS_ZH, STORIES_ZH

LISTS = load_lists("zh")
CATEGORIES = ("水果", "蔬菜", "颜色", "动物", "饮料", "运动", "国家", "城市", "乐器", "职业")
MEASURE = {"水果": "种", "蔬菜": "种", "颜色": "种", "动物": "种", "饮料": "种", "运动": "种", "国家": "个",
           "城市": "个", "乐器": "种", "职业": "种"}
DIGITS = "零一二三四五六七八九十"
_FAMILY = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗"
_GIVEN = "明红华刚丽芳伟娜静帆敏磊杰琼悦军莉远涛平超琳宇佳爽楠梅月雪洋洁然浩阳方诺星强飞青文心天海云"


def any_name(rng: Random) -> str:
    """A known name, or family and given characters put together at random."""
    if rng.random() < 0.5:
        return rng.choice(LISTS["names"])
    return rng.choice(_FAMILY) + "".join(rng.choice(_GIVEN) for _ in range(rng.randint(1, 2)))


def tell_name(rng: Random, memory: Memory) -> Exchange | None:
    name = any_name(rng)
    memory.told["name"] = name
    user = rng.choice(("我叫{}", "我的名字是{}", "我是{}", "你可以叫我{}", "你好，我叫{}", "叫我{}吧", "请叫我{}",
                       "大家叫我{}", "记住，我叫{}",
                       "你好，我是{}"))
    return Exchange(user.format(name), rng.choice((f"很高兴认识你，{name}！", f"你好，{name}！很高兴认识你。")),
                    f"用户叫{name}。",
                    plain=rng.random() < 0.5)


def ask_name(rng: Random, memory: Memory) -> Exchange | None:
    user = rng.choice(("我叫什么名字", "我叫什么", "你知道我的名字吗", "你还记得我的名字吗", "我是谁",
                       "我的名字是什么", "说出我的名字", "你记得我叫什么吗"))
    name = memory.told.get("name")
    if name is None and rng.random() < SKIP_UNTOLD:
        return None
    if name is None:
        return Exchange(user, "你还没有告诉我你的名字。你叫什么？", "用户还没有说名字。")
    return Exchange(user, f"你叫{name}。", f"用户说过叫{name}。")


_FACTS = {
    "城市": (("我住在{}", "我来自{}", "我的家在{}", "我是{}人"), "{}一定是个好地方。", ("我住在哪里", "我来自哪里",
                                                                 "我的家在哪里"), "你说过是{}。"),
    "颜色": (("我最喜欢的颜色是{}", "我喜欢的颜色是{}"), "{}是个好选择，我记住了。", ("我最喜欢什么颜色",
                                                          "我喜欢什么颜色"), "你最喜欢的颜色是{}。"),
    "食物": (("我最喜欢吃{}", "我最爱吃{}"), "{}很好吃，我记住了。", ("我最喜欢吃什么", "我爱吃什么"),
           "你最喜欢吃{}。"),
    "年龄": (("我今年{}岁", "我{}岁了", "我{}岁"), "你{}岁，真是好年纪！", ("我几岁", "我多大了", "我今年多少岁"),
           "你{}岁。"),
    "职业": (("我是一名{}", "我的工作是{}", "我是{}"), "做{}一定很有意思。", ("我的工作是什么", "我是做什么的"),
           "你是{}。"),
    "小狗": (("我的小狗叫{}", "我有一只小狗叫{}"), "{}是个可爱的名字！", ("我的小狗叫什么", "我的小狗叫什么名字"),
           "你的小狗叫{}。"),
    "小猫": (("我的小猫叫{}", "我有一只小猫叫{}"), "{}是个可爱的名字！", ("我的小猫叫什么", "我的小猫叫什么名字"),
           "你的小猫叫{}。"),
    "朋友": (("我的朋友叫{}", "我有个朋友叫{}"), "{}是个好名字！", ("我的朋友叫什么", "我的朋友叫什么名字"),
           "你的朋友叫{}。"),
}


def tell_more(rng: Random, memory: Memory) -> Exchange | None:
    kind = rng.choice(list(_FACTS))
    if kind == "年龄":
        value = str(rng.randint(5, 90))
    elif kind in ("城市", "颜色", "职业"):
        value = rng.choice(LISTS[kind])
    elif kind == "食物":
        value = rng.choice(LISTS["foods"])
    else:
        value = any_name(rng)
    told, reply, _, _ = _FACTS[kind]
    memory.told[kind] = value
    return Exchange(rng.choice(told).format(value), reply.format(value), f"用户告诉我{kind}：{value}。")


def ask_more(rng: Random, memory: Memory) -> Exchange | None:
    known = [kind for kind in memory.told if kind in _FACTS]
    if "故事" in memory.told and rng.random() < 0.4:
        user = rng.choice(("故事里的主角叫什么", "故事讲的是谁", "它叫什么名字"))
        return Exchange(user, f"故事的主角叫{memory.told['故事']}。", f"主角叫{memory.told['故事']}。")
    kind = rng.choice(known) if known and rng.random() < 0.9 else rng.choice(list(_FACTS))
    _, _, questions, answer = _FACTS[kind]
    value = memory.told.get(kind)
    if value is None and rng.random() < SKIP_UNTOLD:
        return None
    if value is None:
        return Exchange(rng.choice(questions), "你还没有告诉我。", "用户没有说过。")
    return Exchange(rng.choice(questions), answer.format(value), f"用户说过：{value}。")


def like(rng: Random, _: Memory) -> Exchange | None:
    thing = rng.choice(LISTS[rng.choice(("foods", "hobbies", "运动", "animals"))])
    if rng.random() < 0.75:
        user = rng.choice(("我喜欢{}", "我爱{}", "我很喜欢{}", "我们聊聊{}吧", "你喜欢{}吗", "我对{}感兴趣",
                           "{}真好")).format(thing)
        return Exchange(user, f"{thing}很不错！你喜欢它的什么？", f"用户在说{thing}。")
    return Exchange(rng.choice(("我不喜欢{}", "我讨厌{}", "{}真无聊")).format(thing),
                    f"不是每个人都喜欢{thing}。那你喜欢什么？",
                    f"用户不喜欢{thing}。")


def say(rng: Random, _: Memory) -> Exchange | None:
    pool = [*LISTS["names"], *LISTS["animals"], *LISTS["topics"], *LISTS["foods"], "你好", "世界", "加油", "今天天气好"]
    words = "".join(rng.choice(pool) for _ in range(rng.randint(1, 3)))
    user = rng.choice(("说{}", "跟我说：{}", "请说“{}”", "重复：{}", "写{}", "请重复“{}”"))
    return Exchange(user.format(words), words + "。", f"我说：{words}。", plain=True)


def again(rng: Random, memory: Memory) -> Exchange | None:
    if not memory.last_reply or len(memory.last_reply) > 60:
        return None
    return Exchange(rng.choice(("再说一遍", "请重复一遍", "你刚才说什么", "没听清，再说一次", "请再说一次")),
                    memory.last_reply, "我重复上一个回答。")


def what_did_i_say(rng: Random, memory: Memory) -> Exchange | None:
    if not memory.last_user or len(memory.last_user) > 40:
        return None
    return Exchange(rng.choice(("我刚才说了什么", "我刚才问了什么", "我上一句话是什么")),
                    f"你说：“{memory.last_user}”", "看看用户的上一句话。")


def sums(rng: Random, _: Memory) -> Exchange | None:
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    kind = rng.random()
    if kind < 0.55:
        sign, word, value = "+", "加", a + b
    elif kind < 0.8:
        a, b = max(a, b), min(a, b)
        sign, word, value = "-", "减", a - b
    else:
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        sign, word, value = "*", "乘", a * b
    form = rng.random()
    if form < 0.3:
        problem = f"{a}{word}{b}"
    elif form < 0.45 and max(a, b) <= 10:
        problem = f"{DIGITS[a]}{word}{DIGITS[b]}"
    elif form < 0.7:
        problem = f"{a}{sign}{b}"
    else:
        problem = f"{a} {sign} {b}"
    ask = rng.choice(("{}等于多少", "{}等于几", "{}是多少", "{}", "计算{}", "算一下{}", "{}=?"))
    return Exchange(ask.format(problem), f"{a} {sign} {b} = {value}。", f"计算 {a} {sign} {b}。",
                    plain=rng.random() < 0.7)


def numbers(rng: Random, _: Memory) -> Exchange | None:
    kind = rng.randrange(3)
    if kind == 0:
        last = rng.randint(3, 12)
        return Exchange(rng.choice((f"从1数到{last}", f"数到{last}")),
                        "，".join(str(n) for n in range(1, last + 1)) + "。",
                        f"数到{last}。")
    if kind == 1:
        a, b = rng.sample(range(1, 100), 2)
        return Exchange(rng.choice((f"{a}和{b}哪个大", f"哪个更大，{a}还是{b}")), f"{max(a, b)}更大。",
                        f"比较{a}和{b}。")
    at = rng.randrange(7)
    days = "一二三四五六日"
    return Exchange(f"星期{days[at]}的后一天是星期几", f"星期{days[at]}的后一天是星期{days[(at + 1) % 7]}。",
                    "想想下一天。")


def name_some(rng: Random, _: Memory) -> Exchange | None:
    category = rng.choice(CATEGORIES)
    count = rng.randint(2, 4)
    amount = rng.choice(("两三四"[count - 2], str(count))) + MEASURE[category]
    user = rng.choice(("说出{}", "说{}", "列出{}", "举{}", "告诉我{}", "给我{}")).format(amount + category)
    return Exchange(user, "、".join(rng.sample(LISTS[category], count)) + "。", f"用户要{amount}{category}。")


def story(rng: Random, memory: Memory) -> Exchange | None:
    animal, name = rng.choice(LISTS["animals"]), any_name(rng)
    if rng.random() < 0.55:
        user = rng.choice(("讲一个{}的故事", "讲个关于{}的故事", "写一个{}的小故事", "给我讲{}的故事",
                           "说一个关于{}的故事")).format(animal)
    else:
        user = rng.choice(("讲个故事", "给我讲个故事", "说个故事", "写一个小故事", "我想听故事", "来个故事",
                           "讲个睡前故事"))
    friend = rng.choice([other for other in LISTS["animals"] if other != animal])
    memory.told["故事"] = name
    text = rng.choice(STORIES_ZH).format(animal=animal, name=name, friend=friend, place=rng.choice(LISTS["places"]),
                                         thing=rng.choice(LISTS["things"]))
    return Exchange(user, text, f"讲一个{animal}的故事。")


def poem(rng: Random, _: Memory) -> Exchange | None:
    topic = rng.choice(LISTS["topics"])
    user = rng.choice(("写一首关于{}的诗", "写一首{}的诗", "以{}为题写首诗", "来一首关于{}的小诗",
                       "写首诗，主题是{}")).format(topic)
    return Exchange(user, rng.choice(POEMS_ZH).format(t=topic), f"写几句{topic}。")


SKILLS: tuple[tuple[Skill, float], ...] = (
    (tell_name, 2.5), (ask_name, 1.5), (tell_more, 1.6), (ask_more, 1.4), (like, 1.0), (say, 0.6), (again, 0.4),
    (what_did_i_say, 0.4),
    (sums, 2.6), (numbers, 0.8), (name_some, 1.0), (story, 1.0), (poem, 0.8),
)
