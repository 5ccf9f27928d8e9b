"""Fills the generated blocks of README.md and docs/ from the code, so that they cannot go stale.

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`. A test compares; `python tools/docs.py`
writes.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from ling3.config import list_contexts, usage
from ling3.engine.flow import TRANSITIONS as RUN
from ling3.serve.life import TRANSITIONS as CONNECTION
from ling3.serve.ports import Service
from ling3.serve.routes.table import all_routes

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/architecture.md", "docs/api.md")
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def first_sentence(path: Path) -> str:
    """What a source file says it is: the first line of its docstring or of its leading comment."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        doc = ast.get_docstring(ast.parse(text)) or ""
        return doc.split("\n", 1)[0]
    comment = [line[3:] for line in text.split("\n\n", 1)[0].splitlines() if line.startswith("// ")]
    return " ".join(comment).split(". ", 1)[0].rstrip(".") + "." if comment else ""


def _files(folder: str, patterns: tuple[str, ...]) -> Iterator[str]:
    for path in sorted(p for pattern in patterns for p in (ROOT / folder).rglob(pattern)):
        said = first_sentence(path)
        if said:
            yield f"| `{path.relative_to(ROOT)}` | {said} |"


def file_map() -> str:
    rows = [*_files("ling3", ("*.py",)), *_files("native", ("*.h", "*.cpp")), *_files("tools", ("*.py",))]
    return "\n".join(["| file | what it is |", "| --- | --- |", *rows])


def endpoints() -> str:
    rows = ["| method | path | |", "| --- | --- | --- |"]
    for route in all_routes(cast(Service, _Anything())):
        doc = sys.modules[route.handler.__module__].__doc__ or ""
        about = re.sub(r"^[A-Z]+ \S+: | \([^()]*\)|\.$", "", doc.split("\n", 1)[0])
        rows.append(f"| {route.method} | `{route.path}` | {about} |")
    return "\n".join(rows)


class _Anything:
    """Stands for the service while routes are listed; none of them is called."""

    def __getattr__(self, name: str) -> Any:
        return _Anything()


def _diagram(transitions: Mapping[Any, Any]) -> str:
    def name(state: Any) -> str:
        return state if isinstance(state, str) else str(state.value)

    lines = [
        f"    {name(state)} --> {after}"
        for state, following in transitions.items()
        for after in sorted(map(name, following))
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _verbatim(text: str) -> str:
    return f"```\n{text}\n```"


BLOCKS: dict[str, Callable[[], str]] = {
    "files": file_map,
    "help": lambda: _verbatim(usage()),
    "contexts": lambda: _verbatim(list_contexts()),
    "endpoints": endpoints,
    "run_states": lambda: _diagram(RUN),
    "connection_states": lambda: _diagram(CONNECTION),
}


def fill(text: str) -> str:
    """A page with every generated block made anew; KeyError for a block that nothing generates."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n{found[3]}", text)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
