"""The house's rules: imports go down only, a file has one subject, `__init__` only hands names on."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import ling3

ROOT = Path(ling3.__file__).parent
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
LONGEST_FILE = 400

# From top to bottom. A part may import parts of lower floors, never one of its own floor or above.
FLOORS: list[set[str]] = [
    {"__main__"},
    {"cli"},
    {"serve", "console", "check", "convert", "inspect", "weights", "config"},
    {"engine"},
    {"model", "text"},
    {"linear"},
    {"npu"},
    {"_native"},
    {"options", "progress", "tell"},
    {"errors"},
    {""},  # the package itself: its version, and what must be set before anything is imported
]
FLOOR = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}


def name_of(file: Path) -> str:
    """Dotted name below `ling3`; empty for the package itself."""
    return ".".join(file.with_suffix("").parts).removesuffix("__init__").removesuffix(".")


MODULES = {name_of(file): file for file in FILES}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text("utf-8"))


def part(name: str) -> str:
    return name.partition(".")[0]


def imported(file: Path) -> set[str]:
    """Names of this package's modules that a file imports, each as far as it is a module."""
    found = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.removeprefix("ling3").removeprefix(".") for name in names if part(name) == "ling3"}
    return {_module(name) for name in found}


def _module(name: str) -> str:
    while name and name not in MODULES and name != "_native":
        name = name.rpartition(".")[0]
    return name


def nodes(file: Path, *kinds: type[ast.AST]) -> list[ast.AST]:
    return [node for node in ast.walk(parsed(file)) if isinstance(node, kinds)]


def test_every_part_has_its_floor() -> None:
    assert {part(name) for name in MODULES} - set(FLOOR) == set()


def test_imports_go_down() -> None:
    def wrong(file: Path, name: str) -> bool:
        own, other = part(name_of(file)), part(name)
        return own != other and FLOOR[other] <= FLOOR[own]

    assert [f"{file} imports {name}" for file in FILES for name in imported(file) if wrong(file, name)] == []


def test_model_and_text_do_not_know_each_other() -> None:
    for one, other in (("model", "text"), ("text", "model")):
        assert FLOOR[one] == FLOOR[other]
        assert [file for file in FILES if part(name_of(file)) == one and other in map(part, imported(file))] == []


def test_text_knows_nothing_of_weights() -> None:
    below = {part(name) for file in FILES if part(name_of(file)) == "text" for name in imported(file)}
    assert below <= {"text", "errors"}


def test_no_module_imports_itself_in_a_circle() -> None:
    left = {name: (imported(file) & MODULES.keys()) - {name} for name, file in MODULES.items()}
    while leaves := {name for name, names in left.items() if not names & left.keys()}:
        left = {name: names for name, names in left.items() if name not in leaves}
    assert left == {}


def test_nothing_is_imported_inside_a_function() -> None:
    for file in FILES:
        functions = nodes(file, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        inside = [node for function in functions for node in ast.walk(function)]
        assert [(file, node.lineno) for node in inside if isinstance(node, ast.Import | ast.ImportFrom)] == []


def test_an_init_file_only_hands_names_on() -> None:
    """A docstring, imports, `__all__`. The package's own holds more (see `FLOORS`) and is not looked at."""
    for file in FILES:
        if file.name != "__init__.py" or not file.parts[1:]:
            continue
        for node in parsed(file).body:
            match node:
                case ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case ast.Assign(targets=[ast.Name(id="__all__")]):
                    pass
                case _:
                    pytest.fail(f"{file}:{node.lineno} is no import")


def test_no_file_is_too_long() -> None:
    lengths = {str(file): len((ROOT / file).read_text("utf-8").splitlines()) for file in FILES}
    assert {file: lines for file, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_every_file_says_what_it_is_for() -> None:
    silent = [file for file in FILES if (ROOT / file).stat().st_size and not ast.get_docstring(parsed(file))]
    assert silent == []
