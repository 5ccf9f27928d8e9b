"""Request bodies to typed structs; every failure is a 400 that says where (E-4, E-52)."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
import orjson

from ling3.errors import RequestError, invalid_parameter

T = TypeVar("T")

_PLACE = re.compile(r"^(?P<problem>.*) - at `(?P<path>.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`$")


def decode_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body. orjson refuses NaN, lone surrogates, deep nesting and trailing text, with position."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _invalid_json(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise _invalid_json("the body must be a JSON object")
    return value


def convert(value: Any, kind: type[T], at: str = "") -> T:
    """`value` as `kind`, without any coercion between JSON types; `at` is the path of `value` in the body."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _at_field(str(error), at) from None


def _at_field(message: str, at: str) -> RequestError:
    place = _PLACE.match(message)
    problem, path = (place["problem"], place["path"].removeprefix("$")) if place else (message, "")
    missing = _MISSING.match(problem)
    if missing:
        problem, path = "required, but missing", f"{path}.{missing['name']}"
    path = (at + path).removeprefix(".")
    return invalid_parameter(path, problem[:1].lower() + problem[1:])


def _invalid_json(message: str) -> RequestError:
    return RequestError(400, "invalid_json", message)
