"""The skeletons of the tiny stories and poems; slots: kind, animal, name, friend, place, thing; topic t / T."""

from __future__ import annotations

STORIES_EN = (
    "Once upon a time there was a {kind} called {name}. {name} lived near a {place} and wanted to see the "
    "sea. One day a {friend} showed the way, "
    "and they watched the waves together. From then on they were friends.",
    "A {kind} named {name} found a {thing} in the {place}. It belonged to an old {friend}. {name} gave it "
    "back, and the {friend} was so happy that "
    "they had cake together.",
    "Once there was a {kind} called {name} who was afraid of the dark. A {friend} said: \"Look, the stars "
    "are your lamps.\" {name} looked up, smiled, "
    "and slept well that night.",
    "In a {place} lived a {kind} called {name}. Every morning {name} sang a song. One day {name} was ill, "
    "and all was quiet. So the {friend} sang for "
    "{name}, and soon {name} was well again.",
    "{name} was a {kind} who had lost a {thing}. {name} looked everywhere in the {place}. In the end a "
    "{friend} found it under a tree. \"Thank you!\" "
    "said {name}, and they played until evening.",
    "One winter a {kind} called {name} met a hungry {friend} in the {place}. {name} shared its last bread. "
    "In spring the {friend} came back with a {thing} "
    "as a present.",
)
POEMS_EN = (
    "I think of {t} when the day is new,\nthe grass is wet with morning dew.\n"
    "I think of {t} when the day is done,\nand say good night to the setting sun.",
    "Oh {t}, so quiet and so clear,\nI am always glad when you are near.\n"
    "The world is wide, the night is long,\nfor {t} I sing this little song.",
    "A little word, a little rhyme,\nfor {t} I take a little time.\n"
    "The clouds go by, the winds are free,\nand {t} will always stay with me.",
    "{T}, {t}, what do you say?\nYou make me smile on a rainy day.\n"
    "I write your name on a paper kite,\nand let it fly into the light.",
)
STORIES_ZH = (
    "从前，{place}里有一只{animal}，名叫{name}。{name}想去看大海。有一天，{friend}给它带路，它们一起看了海浪，从此成了好朋友。",
    "{animal}{name}在{place}里捡到了{thing}。原来是{friend}丢的。{name}把它还了回去，{friend}高兴极了，请它吃蛋糕。",
    "从前有一只{animal}叫{name}，它怕黑。{friend}说：“你看，星星就是你的灯。”{name}抬头看看，笑了，睡得很香。",
    "{place}里住着一只{animal}，叫{name}。它每天早上唱歌。有一天它病了，{friend}就替它唱歌，{name}很快就好了。",
)
POEMS_ZH = (
    "我爱{t}，静静地来，像一首歌，在心里开。我想{t}，轻轻地去，留下一片，温柔的雨。",
    "{t}啊{t}，你多美丽，陪我走过，风和四季。天高云淡，路长水远，想起{t}，心里就暖。",
    "清晨我看见{t}，露珠在草上闪光。傍晚我想起{t}，小路慢慢变长。",
)
