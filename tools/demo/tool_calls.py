"""The tools the model learns to call: a clock, the weather and a sum, each under several names and in two languages."""

from __future__ import annotations

from random import Random

from .exchange import Exchange
from .intents import load_lists

JsonObject = dict[str, object]

_TIME_NAMES = ("get_time", "get_current_time", "current_time", "clock")
_WEATHER_NAMES = ("get_weather", "get_current_weather", "weather")
_SUM_NAMES = ("add", "sum", "add_numbers")
_SKY_EN = ("sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear")
_SKY_ZH = ("晴", "多云", "下雨", "有风", "下雪", "有雾", "阴")


def tool(name: str, description: str, properties: dict[str, str], rng: Random) -> JsonObject:
    """A function definition in the OpenAI form; `properties` gives each argument's type."""
    parameters: JsonObject = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    if properties and rng.random() < 0.7:
        parameters["required"] = list(properties)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


class Toolbox:
    """The tools offered in one conversation, and exchanges that use them."""

    def __init__(self, rng: Random) -> None:
        self.time = rng.choice(_TIME_NAMES)
        self.weather = rng.choice(_WEATHER_NAMES)
        self.place = rng.choice(("city", "city", "location"))
        self.add = rng.choice(_SUM_NAMES)
        offers = {
            "time": tool(self.time, rng.choice(("Get the current time", "Tells the time.",
                                                "Returns the current time")), {}, rng),
            "weather": tool(self.weather, rng.choice(("Get the weather of a city", "Current weather for a city",
                                                      "Get current weather")),
                            {self.place: "string"}, rng),
            "sum": tool(self.add, rng.choice(("Add two numbers", "Adds a and b.")), {"a": "integer", "b": "integer"},
                        rng),
        }
        self.kinds = rng.sample(list(offers), rng.choice((1, 1, 2, 3)))
        self.tools = [offers[kind] for kind in self.kinds]

    def use(self, rng: Random, language: str) -> Exchange:
        """A line that needs one of the tools, the call, its result and the reply."""
        kind = rng.choice(self.kinds)
        english = language == "en"
        if kind == "time":
            clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
            user = rng.choice(("what time is it", "tell me the time", "what is the time now",
                               "do you know the time") if english
                              else ("现在几点", "几点了", "告诉我时间", "现在是什么时间"))
            reply = f"It is {clock}." if english else f"现在是 {clock}。"
            result = rng.choice((clock, f'{{"time": "{clock}"}}'))
            return Exchange(user, reply, "I need the clock tool." if english else "需要用时钟工具。",
                            call=(self.time, {}),
                            result=result)
        if kind == "weather":
            city = rng.choice(load_lists(language)["cities" if english else "城市"])
            sky, degrees = rng.choice(_SKY_EN if english else _SKY_ZH), rng.randint(0, 35)
            user = rng.choice(("what is the weather in {}", "how is the weather in {}", "weather in {}",
                               "is it warm in {}", "what's the weather like in {} today")
                              if english else ("{}天气怎么样", "{}的天气如何", "{}今天天气怎么样",
                                               "查一下{}的天气")).format(city)
            reply = f"{city}的天气：{sky}，{degrees} 度。"
            if english:
                reply = f"The weather in {city} is {sky}, {degrees} degrees."
            result = rng.choice((f"{sky}, {degrees} C", f'{{"weather": "{sky}", "temperature": {degrees}}}',
                                 f"{sky}, {degrees}"))
            thought = f"I need the weather tool for {city}." if english else f"需要查{city}的天气。"
            return Exchange(user, reply, thought, call=(self.weather, {self.place: city}), result=result)
        a, b = rng.randint(10, 999), rng.randint(10, 999)
        user = rng.choice(("what is {a} + {b}", "add {a} and {b}", "what is {a} plus {b}", "{a} + {b}") if english
                          else ("{a}加{b}等于多少", "计算{a}+{b}", "{a} + {b} 是多少")).format(a=a, b=b)
        reply = f"{a} + {b} = {a + b}." if english else f"{a} + {b} = {a + b}。"
        thought = "I use the tool to add." if english else "用工具来加。"
        return Exchange(user, reply, thought, call=(self.add, {"a": a, "b": b}), result=str(a + b))
