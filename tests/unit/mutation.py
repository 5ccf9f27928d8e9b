"""One wrong rule at a time: a module's source with a piece of text replaced, put in place of the module's names.

Only the top-level definitions that changed, and those that use them, are defined anew, so that only their kernels
are compiled again.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ling3.linear.pool import Entry

CONSUMERS = ("ling3.model.decoder", "ling3.model.package", "ling3.convert.conversion")
"""Modules that take names from others by import, where a mutated name has to be put in."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Mutation:
    """`rule`: what is broken, with its statement number; `module`: of `ling3.model`; `old`: unique text in it."""

    rule: str
    module: str
    old: str
    new: str


def apply(mutation: Mutation, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the mutated definitions in place. Fails the test if the text to replace is not there exactly once."""
    module = importlib.import_module(f"ling3.model.{mutation.module}")
    for name, value in _redefined(mutation, module, folder, monkeypatch).items():
        original = getattr(module, name)
        for consumer in (module, *map(importlib.import_module, CONSUMERS)):
            if getattr(consumer, name, None) is original:
                monkeypatch.setattr(consumer, name, value)


def _redefined(mutation: Mutation, module: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the mutation changes, with their new values."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    count = source.count(mutation.old)
    if count != 1:
        pytest.fail(
            f"{mutation.rule}: the text to replace occurs {count} times in {module.__name__}; bring the mutation "
            f"up to date with the source:\n{mutation.old}"
        )
    mutated = source.replace(mutation.old, mutation.new)
    path = folder / f"{mutation.module}.py"
    path.write_text(mutated)
    nodes = _affected(ast.parse(source), ast.parse(mutated))
    # A name of its own: numba gives functions of equal module and name the same symbol, and the first one wins.
    home = ModuleType(f"broken_rule_{next(_numbers)}")
    monkeypatch.setitem(sys.modules, home.__name__, home)
    # Entries are not registered, so that later tests do not compile them.
    vars(home).update({**vars(module), "__name__": home.__name__, "pool_entry": Entry})
    flags = annotations.compiler_flag
    exec(compile(ast.Module(nodes, []), str(path), "exec", flags, dont_inherit=True), vars(home))
    return {name: getattr(home, name) for node in nodes for name in _defined(node)}


def _affected(before: ast.Module, after: ast.Module) -> list[ast.stmt]:
    """Top-level statements of `after` that differ, or use a name that another affected one defines, in their order."""
    pairs = zip(before.body, after.body, strict=True)
    affected = {i for i, (old, new) in enumerate(pairs) if ast.dump(old) != ast.dump(new)}
    while True:
        names = {name for i in affected for name in _defined(after.body[i])}
        users = {i for i, node in enumerate(after.body) if names & _used(node)}
        if users <= affected:
            return [after.body[i] for i in sorted(affected)]
        affected |= users


def _used(node: ast.stmt) -> set[str]:
    """Names that occur in a top-level statement."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _defined(node: ast.stmt) -> set[str]:
    """Names that a top-level statement defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()
