"""The part of a filter that an engine applies itself: what it lets through holds everything that matches, maybe more.

Only conditions that engines are sure to judge no narrower than the library are handed over: equality with plain
strings, booleans and numbers, ranges of numbers, and shared elements of lists of strings. The rest is judged by the
library on the candidates, so that a filter means the same everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sidr_rag.backends.protocol import as_float
from sidr_rag.search.filters import And, Condition, Filter, Or

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_TEXT = re.compile(r"[A-Za-z0-9 _.,:;/+@#()=&-]{0,1000}\Z")
_MOST_VALUES = 1000


@dataclass(frozen=True)
class Equals:
    """The value under a path is one of these (or, if it is a list, has one of them)."""

    path: tuple[str, ...]
    values: tuple[str | bool, ...]


@dataclass(frozen=True)
class Between:
    """The number under a path lies in a closed range; None leaves a side open."""

    path: tuple[str, ...]
    least: float | None
    most: float | None


@dataclass(frozen=True)
class HasAny:
    """The list under a path has one of these as an element."""

    path: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Joined:
    """All (or any) of the parts hold."""

    by: Literal["and", "or"]
    parts: tuple[Pushed, ...]


Pushed = Equals | Between | HasAny | Joined


def pushed(condition: Filter | None, *, booleans: bool = True) -> Pushed | None:
    """What an engine may apply of a filter; None for nothing. Without `booleans`, none are compared."""
    if isinstance(condition, And):
        parts = [part for c in condition.parts if (part := pushed(c, booleans=booleans)) is not None]
        return None if not parts else parts[0] if len(parts) == 1 else Joined("and", tuple(parts))
    if isinstance(condition, Or):
        every = [pushed(part, booleans=booleans) for part in condition.parts]
        known = tuple(part for part in every if part is not None)
        return Joined("or", known) if known and len(known) == len(every) else None
    if isinstance(condition, Condition) and all(map(_NAME.match, condition.path)):
        found = _condition(condition)
        return None if not booleans and _holds_boolean(found) else found
    return None


def _holds_boolean(part: Pushed | None) -> bool:
    if isinstance(part, Joined):
        return any(map(_holds_boolean, part.parts))
    return isinstance(part, Equals) and any(isinstance(value, bool) for value in part.values)


def _condition(condition: Condition) -> Pushed | None:
    path, op, operand = condition.path, condition.op, condition.operand
    if op in ("eq", "in"):
        values = [operand] if op == "eq" else list(operand)
        parts = [_equal(path, kind, content) for kind, content in values[: _MOST_VALUES + 1]]
        known = tuple(part for part in parts if part is not None)
        if not known or len(known) != len(parts) or len(parts) > _MOST_VALUES:
            return None
        same = tuple(sorted((v for part in known if isinstance(part, Equals) for v in part.values), key=repr))
        if len(same) == len(known):
            return Equals(path, same)
        return known[0] if len(known) == 1 else Joined("or", known)
    if op in ("gt", "gte", "lt", "lte") and operand[0] == "number":
        bound = _bound(operand[1])
        if bound is None:
            return None
        return Between(path, bound, None) if op in ("gt", "gte") else Between(path, None, bound)
    if op == "any":
        words = tuple(sorted(content for kind, content in operand if _plain(kind, content)))
        return HasAny(path, words) if words and len(words) == len(operand) <= _MOST_VALUES else None
    if op == "all":
        words = tuple(sorted(content for kind, content in operand if _plain(kind, content)))[:20]
        parts_of_all = tuple(HasAny(path, (word,)) for word in words)
        return None if not parts_of_all else parts_of_all[0] if len(words) == 1 else Joined("and", parts_of_all)
    return None


def _equal(path: tuple[str, ...], kind: str, content: object) -> Equals | Between | None:
    if kind == "boolean" and isinstance(content, bool):
        return Equals(path, (content,))
    if isinstance(content, str) and _plain(kind, content):
        return Equals(path, (content,))
    if kind == "number" and isinstance(content, (int, float)):
        bound = _bound(content)
        return None if bound is None else Between(path, bound, bound)
    return None


def _bound(number: float) -> float | None:
    """A number that every engine reads and compares like float64."""
    return as_float(number) if number == 0 or 1e-6 <= abs(number) <= 1 << 53 else None


def _plain(kind: str, content: object) -> bool:
    return kind == "string" and isinstance(content, str) and _TEXT.match(content) is not None
