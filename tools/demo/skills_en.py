"""English skills that need more than a table row: memory, copying, arithmetic, lists, stories and poems."""

from __future__ import annotations

from random import Random

from .exchange import SKIP_UNTOLD, Exchange, Memory, Skill
from .intents import load_lists
from .storybook import POEMS_EN, STORIES_EN

LISTS = load_lists("en")
CATEGORIES = ("fruits", "vegetables", "colours", "animals", "drinks", "sports", "instruments", "jobs", "cities",
              "birds",
              "trees", "clothes", "planets", "metals", "languages", "countries", "insects", "furniture", "tools",
              "flowers")
SINGULAR = {"fruits": "fruit", "vegetables": "vegetable", "colours": "colour", "animals": "animal", "drinks": "drink",
            "sports": "sport", "instruments": "musical instrument", "jobs": "job", "cities": "city", "birds": "bird",
            "trees": "tree", "planets": "planet", "metals": "metal", "languages": "language", "countries": "country",
            "insects": "insect", "tools": "tool", "flowers": "flower"}
_ONSETS = ("B", "D", "F", "G", "H", "J", "K", "L", "M", "N", "P", "R", "S", "T", "V", "Z", "Br", "Kr", "Tr", "Sh", "Th")
_ENDINGS = ("a", "o", "i", "an", "el", "in", "or", "us", "ina", "ara", "eron", "ilo", "ette", "ovan", "una", "ek", "ix")


def article(word: str) -> str:
    """The word with "a" or "an" before it."""
    return ("an " if word[0].lower() in "aeiou" else "a ") + word


def join(words: list[str]) -> str:
    """Words as a spoken list: "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def any_name(rng: Random) -> str:
    """A known name, or an invented one: copying is then the only way to be right."""
    if rng.random() < 0.65:
        return rng.choice(LISTS["names"])
    return rng.choice(_ONSETS) + rng.choice("aeiou") + rng.choice(("", "l", "n", "r", "m", "s")) + rng.choice(_ENDINGS)


def tell_name(rng: Random, memory: Memory) -> Exchange | None:
    name = any_name(rng)
    memory.told["name"] = name
    user = rng.choice(("my name is {}", "I am {}", "I'm {}", "call me {}", "you can call me {}", "hi, I am {}",
                       "hello, my name is {}",
                       "my name's {}", "people call me {}", "this is {}", "hi, my name is {}", "hey, {} here",
                       "the name is {}",
                       "hello, I'm {}", "{} is my name", "please call me {}",
                       "remember that my name is {}")).format(name)
    reply = rng.choice((f"Nice to meet you, {name}!", f"Hello {name}! Nice to meet you."))
    return Exchange(user, reply, f"The user's name is {name}.")


def ask_name(rng: Random, memory: Memory) -> Exchange | None:
    user = rng.choice(("what is my name", "what's my name", "do you know my name", "who am I",
                       "do you remember my name",
                       "tell me my name", "what did I say my name was", "can you say my name", "say my name",
                       "my name?"))
    name = memory.told.get("name")
    if name is None and rng.random() < SKIP_UNTOLD:
        return None
    if name is None:
        return Exchange(user, "You have not told me your name yet. What is it?", "The user has not told me a name.")
    return Exchange(user, f"Your name is {name}.", f"The user said that the name is {name}.")


def tell_more(rng: Random, memory: Memory) -> Exchange | None:
    """A fact about the user worth remembering."""
    kind = rng.choice(("city", "age", "colour", "food", "animal", "pet", "job", "friend"))
    pick = rng.choice
    if kind == "city":
        value = pick(LISTS["cities"])
        user = pick(("I live in {}", "I am from {}", "I come from {}", "my home is {}", "I'm from {}",
                     "my city is {}")).format(value)
        reply = f"{value} must be a nice place to live."
    elif kind == "age":
        value = str(rng.randint(5, 90))
        user = pick(("I am {} years old", "I'm {} years old", "my age is {}", "I turned {}")).format(value)
        reply = f"So you are {value} years old. A good age!"
    elif kind in ("colour", "food", "animal"):
        value = pick(LISTS[{"colour": "colours", "food": "foods", "animal": "animals"}[kind]])
        user = pick(("my favourite {k} is {v}", "my favorite {k} is {v}",
                     "the {k} I like best is {v}")).format(k=kind, v=value)
        reply = f"{value[0].upper() + value[1:]} is a good choice. I will remember it."
    elif kind == "job":
        value = article(pick(LISTS["jobs"]))
        user = pick(("I am {}", "I work as {}", "I'm {}", "my job: I am {}")).format(value)
        reply = f"It must be interesting to be {value}."
    elif kind == "pet":
        kind, value = pick(("dog", "cat", "hamster", "horse", "rabbit", "parrot")), any_name(rng)
        user = pick(("I have a {k} called {v}", "my {k} is called {v}", "my {k}'s name is {v}",
                     "I have a {k} named {v}")).format(k=kind, v=value)
        reply = f"{value} is a lovely name for a {kind}!"
    else:
        kind, value = pick(("sister", "brother", "friend", "mother", "father", "teacher", "son", "daughter",
                            "boss")), any_name(rng)
        user = pick(("my {k} is called {v}", "my {k}'s name is {v}", "I have a {k} named {v}",
                     "the name of my {k} is {v}")).format(k=kind, v=value)
        reply = f"{value} is a nice name. Give your {kind} my greetings!"
    memory.told[kind] = value
    return Exchange(user, reply, f"The user tells me about {kind}: {value}.")


_RECALL = {
    "city": (("where do I live", "where am I from", "which city do I live in", "what is my city"), "You told me: {}."),
    "age": (("how old am I", "what is my age", "do you know my age"), "You are {} years old."),
    "colour": (("what is my favourite colour", "which colour do I like", "what's my favorite colour"),
               "Your favourite colour is {}."),
    "food": (("what is my favourite food", "what do I like to eat", "what's my favorite food"),
             "Your favourite food is {}."),
    "animal": (("what is my favourite animal", "which animal do I like best", "what's my favorite animal"),
               "Your favourite animal is {}."),
    "job": (("what is my job", "what do I do for a living", "what do I work as"), "You are {}."),
    "story hero": (("who was the story about", "what was the name in the story", "what was the hero called",
                    "who is the hero of the story", "what was its name"), "The hero of the story was {}."),
}
_NAMED = ("dog", "cat", "hamster", "horse", "rabbit", "parrot", "sister", "brother", "friend", "mother", "father",
          "teacher",
          "son", "daughter", "boss")


def ask_more(rng: Random, memory: Memory) -> Exchange | None:
    """A question about a fact told earlier, sometimes about one that was never told."""
    known = [kind for kind in memory.told if kind in _RECALL or kind in _NAMED]
    kind = rng.choice(known) if known and rng.random() < 0.9 else rng.choice(("city", "age", "colour", "food", "job",
                                                                              "dog", "sister"))
    value = memory.told.get(kind)
    if value is None and rng.random() < SKIP_UNTOLD:
        return None
    if kind in _NAMED:
        user = rng.choice(("what is my {}'s name", "what is my {} called", "what's the name of my {}",
                           "how is my {} called",
                           "do you remember my {}'s name")).format(kind)
        reply = f"Your {kind} is called {value}."
    else:
        questions, answer = _RECALL[kind]
        user, reply = rng.choice(questions), answer.format(value)
    if value is None:
        return Exchange(user, "You have not told me that yet.", "The user has not told me that.")
    return Exchange(user, reply, f"The user told me: {value}.")


def like(rng: Random, _: Memory) -> Exchange | None:
    thing = rng.choice(LISTS[rng.choice(("foods", "hobbies", "sports", "animals"))])
    if rng.random() < 0.75:
        user = rng.choice(("I like {}", "I love {}", "I really like {}", "I enjoy {}", "{} is great",
                           "I am a fan of {}", "I want {}",
                           "let's talk about {}", "do you like {}", "can we talk about {}",
                           "I am interested in {}")).format(thing)
        reply = rng.choice((f"I like to hear about {thing}! What do you like about it?",
                            f"{thing[0].upper() + thing[1:]} is a nice topic. Tell me more!"))
        return Exchange(user, reply, f"The user talks about {thing}.")
    user = rng.choice(("I don't like {}", "I hate {}", "{} is boring", "I do not like {}", "{} is bad")).format(thing)
    return Exchange(user, f"Not everybody likes {thing}. What do you like instead?", f"The user does not like {thing}.")


def say(rng: Random, _: Memory) -> Exchange | None:
    """Copy what the user asks for, word by word."""
    pool = [*LISTS["names"], *LISTS["animals"], *LISTS["topics"], *LISTS["foods"], "hello", "world", "yes",
            "I am here", "good luck", "banana", "seven"]
    words = " ".join(rng.choice(pool) for _ in range(rng.randint(1, 4)))
    quote = rng.random() < 0.3
    user = rng.choice(("say {}", "repeat after me: {}", "please say {}", "repeat: {}", "write {}", "can you say {}",
                       "echo {}", "say the words {}"))
    return Exchange(user.format(f'"{words}"' if quote else words), words[0].upper() + words[1:] + ".",
                    f"I say: {words}.", plain=True)


def again(rng: Random, memory: Memory) -> Exchange | None:
    if not memory.last_reply or len(memory.last_reply) > 120:
        return None
    user = rng.choice(("can you repeat that", "say that again", "what did you say", "repeat that please",
                       "pardon, what did you say",
                       "once more please", "can you say that again", "I did not understand, please repeat",
                       "repeat your answer"))
    return Exchange(user, memory.last_reply, "I repeat my last answer.")


def what_did_i_say(rng: Random, memory: Memory) -> Exchange | None:
    if not memory.last_user or len(memory.last_user) > 70:
        return None
    user = rng.choice(("what did I just say", "what did I ask you", "what was my last question", "repeat what I said",
                       "what did I say before"))
    return Exchange(user, f'You said: "{memory.last_user}"', "I look at the last line of the user.")


def sums(rng: Random, memory: Memory) -> Exchange | None:
    kind = rng.random()
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    if kind < 0.55:
        sign, word, value = "+", "plus", a + b
    elif kind < 0.8:
        a, b = max(a, b), min(a, b)
        sign, word, value = "-", "minus", a - b
    else:
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        sign, word, value = "*", "times", a * b
    ask = rng.choice(("what is {}", "{}", "how much is {}", "calculate {}", "what's {}", "compute {}", "{} = ?",
                      "can you add {}" if sign == "+" else "{}",
                      "tell me {}", "solve {}"))
    numbers = LISTS["number_words"]
    form = rng.random()
    if form < 0.15:
        problem = f"{numbers[min(a, 12)]} {word} {numbers[min(b, 12)]}"
    elif form < 0.45:
        problem = f"{a} {word} {b}"
    elif form < 0.6:
        problem = f"{a}{sign}{b}"
    else:
        problem = f"{a} {sign} {b}"
    return Exchange(ask.format(problem), f"{a} {sign} {b} = {value}.", f"I compute {a} {sign} {b}.",
                    plain=rng.random() < 0.7)


def numbers(rng: Random, _: Memory) -> Exchange | None:
    """Counting, comparing and following."""
    kind = rng.randrange(6)
    if kind == 0:
        first, last = (1, rng.randint(3, 15)) if rng.random() < 0.7 else (rng.randint(2, 9), rng.randint(10, 15))
        user = f"count to {last}" if first == 1 else f"count from {first} to {last}"
        return Exchange(user, ", ".join(str(n) for n in range(first, last + 1)) + ".", f"I count up to {last}.")
    if kind == 1:
        first = rng.randint(3, 12)
        return Exchange(f"count down from {first}", ", ".join(str(n) for n in range(first, -1, -1)) + ".",
                        f"I count down from {first}.")
    if kind == 2:
        a, b = rng.sample(range(1, 100), 2)
        more = rng.random() < 0.6
        user = rng.choice((f"which is {'larger' if more else 'smaller'}, {a} or {b}",
                           f"what is {'bigger' if more else 'smaller'}: {a} or {b}"))
        value = max(a, b) if more else min(a, b)
        return Exchange(user, f"{value} is {'larger' if more else 'smaller'}.", f"I compare {a} and {b}.")
    if kind == 3:
        n = rng.randint(0, 98)
        return Exchange(rng.choice((f"what comes after {n}", f"which number comes after {n}",
                                    f"what number follows {n}")), f"After {n} comes {n + 1}.",
                                    f"{n} plus one is {n + 1}.")
    word, table = ("day", LISTS["days"]) if kind == 4 else ("month", LISTS["months"])
    at = rng.randrange(len(table))
    if rng.random() < 0.5:
        return Exchange(f"what {word} comes after {table[at]}",
                        f"After {table[at]} comes {table[(at + 1) % len(table)]}.", f"The {word} after {table[at]}.")
    return Exchange(f"what {word} comes before {table[at]}", f"Before {table[at]} comes {table[at - 1]}.",
                    f"The {word} before {table[at]}.")


def name_some(rng: Random, _: Memory) -> Exchange | None:
    category = rng.choice(CATEGORIES)
    count = rng.randint(2, 5)
    words = list(rng.sample(LISTS[category], count))
    word = rng.choice((LISTS["number_words"][count], str(count)))
    user = rng.choice(("name {n} {c}", "tell me {n} {c}", "give me {n} {c}", "list {n} {c}", "can you name {n} {c}",
                       "I need {n} {c}", "name me {n} {c}"))
    reply = join(words)
    return Exchange(user.format(n=word, c=category), reply[0].upper() + reply[1:] + ".",
                    f"The user wants {LISTS['number_words'][count]} {category}.")


def is_a(rng: Random, _: Memory) -> Exchange | None:
    """Membership: "is a carrot a fruit?"."""
    kinds = ("fruits", "vegetables", "colours", "animals", "drinks", "sports", "metals", "trees", "instruments",
             "cities")
    right = rng.choice(kinds)
    word = rng.choice(LISTS[right])
    asked = right if rng.random() < 0.5 else rng.choice(kinds)
    if word in LISTS[asked] and asked != right:
        return None
    noun = article(word) if right in ("fruits", "vegetables", "animals", "instruments", "trees") else word
    user = rng.choice((f"is {noun} {article(SINGULAR[asked])}", f"is {noun} {article(SINGULAR[asked])} or not"))
    verdict = "Yes" if asked == right else "No"
    return Exchange(user, f"{verdict}, {noun} is {article(SINGULAR[right])}.", f"{word} belongs to the {right}.")


def story(rng: Random, memory: Memory) -> Exchange | None:
    animal, name = rng.choice(LISTS["animals"]), any_name(rng)
    ask = rng.random()
    kind = ("little ", "small ", "brave ", "clever ", "young ")[rng.randrange(5)] + animal
    pick = rng.choice
    if ask < 0.45:
        user = pick(("tell me a story about {}", "write a story about {}", "a story about {} please",
                     "tell a short story about {}",
                     "can you tell me a story about {}", "make up a story about {}")).format(article(animal))
    elif ask < 0.65:
        user = pick(("tell me a story about {}",
                     "write a short story about {}")).format(f"{article(animal)} named {name}")
    else:
        user = pick(("tell me a story", "a story please", "do you know a story", "tell me a bedtime story",
                     "write a short story", "write a story",
                     "I want to hear a story", "make up a story", "tell a tale"))
    friend = rng.choice([other for other in LISTS["animals"] if other != animal])
    text = rng.choice(STORIES_EN).format(kind=kind, animal=animal, name=name, friend=friend,
                                         place=pick(LISTS["places"]), thing=pick(LISTS["things"]))
    memory.told["story hero"] = name
    return Exchange(user, text, f"I tell a story about {article(animal)}.")


def poem(rng: Random, _: Memory) -> Exchange | None:
    topic = rng.choice(LISTS["topics"])
    if rng.random() < 0.75:
        user = rng.choice(("write a poem about {}", "a poem about {}", "tell me a poem about {}",
                           "can you write a poem about {}", "write me a short poem about {}")).format(topic)
    else:
        user = rng.choice(("write a poem", "tell me a poem", "a poem please", "do you know a poem",
                           "write a short poem"))
    return Exchange(user, rng.choice(POEMS_EN).format(t=topic, T=topic[0].upper() + topic[1:]),
                    f"I write four lines about {topic}.")


def apples(rng: Random, _: Memory) -> Exchange | None:
    a, b = rng.randint(2, 9), rng.randint(1, 6)
    thing = rng.choice(("apples", "books", "balls", "coins", "eggs", "cookies", "pens", "cats"))
    if rng.random() < 0.5 or b >= a:
        user = rng.choice((f"I have {a} {thing} and get {b} more. How many do I have?",
                           f"if I have {a} {thing} and buy {b} more, how many are there?"))
        return Exchange(user, f"{a} + {b} = {a + b}, so you have {a + b} {thing}.", f"I add {a} and {b}.")
    user = rng.choice((f"I have {a} {thing} and lose {b}. How many are left?",
                       f"if I have {a} {thing} and give away {b}, how many do I have?"))
    return Exchange(user, f"{a} - {b} = {a - b}, so {a - b} {thing} {'is' if a - b == 1 else 'are'} left.",
                    f"I subtract {b} from {a}.")


SKILLS: tuple[tuple[Skill, float], ...] = (
    (tell_name, 2.5), (ask_name, 1.5), (tell_more, 2.0), (ask_more, 1.8), (like, 1.2), (say, 1.6), (again, 0.5),
    (what_did_i_say, 0.5),
    (sums, 3.2), (numbers, 1.6), (name_some, 1.8), (is_a, 0.8), (story, 1.3), (poem, 0.9), (apples, 0.5),
)
