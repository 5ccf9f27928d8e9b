"""Lines of real people, used only as what the *user* says: questions without an answer and remarks to listen to.

`chitchat-dataset` (MIT) and `chatterbot-corpus` (BSD-3-Clause) are fetched by pip into a temporary folder. A line is
kept only if it is short, plain and free of digits, addresses, names and unwanted words, so that nothing private can be
learned; the model never learns to *say* these lines, except when asked to repeat what was just said.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .intents import TEXT_DIR, text_lines

PACKAGES = ("chitchat-dataset==0.9.0", "chatterbot-corpus==1.3.3")

_PLAIN = re.compile(r"[A-Za-z][A-Za-z ,.'?!-]*\Z")
_CHINESE = re.compile(r"[\u4e00-\u9fff，。？！]{3,24}\Z")
_UNWANTED_WORDS = "|".join(" ".join(text_lines("unwanted.txt")).split()).replace("*", r"\w*").replace("_", " ?")
_UNWANTED = re.compile(rf"\b(?:{_UNWANTED_WORDS})\b", re.IGNORECASE)
_QUESTION = re.compile(r"(?i)(who|what|where|when|why|how|which)\b")
# Lines that the intents answer, or that only make sense inside the talk they come from.
_COVERED = re.compile(
    r"(?i)\b(hello|hi|hey|what's up|whats up|how's it|you|your|u|ur|my|i|me|we|us|that|this|it|they|he|she|"
    r"those|these|about|meaning|again|else)\b"
)
_STARTS = re.compile(r"(?i)(i|my|we|it|there|the|today|yesterday|last|some|people|our)\b")


@dataclass
class SmallTalk:
    """Cleaned lines: English questions without context, English remarks, rarer English words, Chinese lines."""

    questions: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    chinese_questions: list[str] = field(default_factory=list)


def known_words() -> set[str]:
    """Every English word of the project's own text: the model must not be taught that it does not know them."""
    texts = [path.read_text(encoding="utf-8").lower() for path in TEXT_DIR.glob("en_*.txt")]
    return set(re.findall(r"[a-z]+", " ".join(texts)))


def fetch(folder: Path) -> list[Path]:
    """Download the two wheels into `folder`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *PACKAGES]
    subprocess.run(command, check=True)
    return sorted(folder.glob("*.whl"))


def clean(text: str) -> str:
    """One line in normal spelling, or an empty string when it must not be used."""
    text = re.sub(r"\s+", " ", text.replace("\u2019", "'")).strip()
    text = re.sub(r"([!?.])\1+", r"\1", text)
    words = text.split(" ")
    if not 3 <= len(words) <= 14 or len(text) > 80 or not _PLAIN.match(text) or _UNWANTED.search(text):
        return ""
    if any(word[1:2].isalpha() and word.isupper() for word in words):
        return ""
    # A capital inside the line is most likely a person's or a place's name.
    if any(word[:1].isupper() and not word.startswith(("I", "I'")) for word in words[1:]):
        return ""
    return text


def collect(wheels: list[Path]) -> SmallTalk:
    """Read both packages and sort their usable lines."""
    talk = SmallTalk()
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name == "chitchat_dataset/dataset.json":
                    for text in _chitchat_lines(json.loads(archive.read(name))):
                        line = clean(text)
                        counts.update(re.findall(r"[a-z]{4,12}", line.lower()))
                        if line and line.lower() not in seen:
                            seen.add(line.lower())
                            _sort(line, talk)
                elif name.startswith("chatterbot_corpus/data/chinese/") and name.endswith(".yml"):
                    _chinese(archive.read(name).decode("utf-8"), talk)
    known = known_words()
    rare = {word for word, count in counts.items() if 2 <= count <= 60}
    talk.words = sorted(word for word in rare - known if not _UNWANTED.search(word))
    return talk


def _chitchat_lines(dataset: dict[str, dict[str, list[list[dict[str, str]]]]]) -> list[str]:
    return [message["text"] for talk in dataset.values() for turn in talk["messages"] for message in turn]


def _sort(line: str, talk: SmallTalk) -> None:
    if line.endswith("?"):
        if _QUESTION.match(line) and not _COVERED.search(line) and len(line.split()) >= 4:
            talk.questions.append(line)
    elif _STARTS.match(line) and "?" not in line and len(line.split()) >= 5 and not re.search(r"(?i)\byou\b|\bname\b",
                                                                                              line):
        talk.remarks.append(line)


def _chinese(text: str, talk: SmallTalk) -> None:
    for line in re.findall(r"^- - (.+)$", text, re.MULTILINE):
        line = line.strip("'\" ")
        if _CHINESE.match(line) and "你" not in line and line.endswith(("？", "吗", "呢", "什么")):
            talk.chinese_questions.append(line)
