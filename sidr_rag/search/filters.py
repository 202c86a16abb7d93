"""Metadata filters: a small language of JSON-like mappings, checked whole before the first passage is looked at.

Syntax:
    * `{"owner": "amber"}`: equal to; short for `{"owner": {"eq": "amber"}}`. A list compares as a whole list.
    * `{"page": {"gt": 3, "lte": 9}}`: every operator must hold.
    * `{"owner": "amber", "page": 3}`: every key must hold. `{}` matches everything.
    * `{"and": [...]}`, `{"or": [...]}`, `{"not": {...}}`: an empty "and" matches everything, an empty "or" nothing.
    * `{("a", "b"): 3}` or, for JSON, `{"path": ["a", "b"], "eq": 3}`: a key inside nested mappings. A string key is
      literal, dots included. A list under "path" is what makes the second form, so a metadata key "path" is filtered
      like any other; a key named like an operator, "and", "or" or "not" is written `{"path": ["and"], "eq": 3}`.

Operators:
    * eq, ne: any JSON value.
    * in, nin: a list (or set) of JSON values; the stored value is one (is none) of them.
    * gt, gte, lt, lte: a number or a string; numbers compare with numbers, strings with strings by code point.
    * exists: true or false; a key that holds null exists.
    * is_empty: true or false; a missing key, null, "", [] and {} are empty.
    * contains: any JSON value; the stored list has it as an element, or the stored string has it as a part.
    * any, all: a list (or set) of JSON values; the stored list has at least one (has each) of them.
    * text_match: a string; a part of the stored string, whatever the case.

A missing key or a stored value of another type does not match, and therefore does match ne, nin and "not". True is
not 1; 1 is 1.0; lists and mappings are equal if their parts are.
"""

from __future__ import annotations

import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.search.json_values import MAX_DEPTH, Canonical, canonical, is_faulty, spell

_MISSING = object()
_Path = tuple[str, ...]


class Filter(ABC):
    """A parsed filter: immutable, comparable, hashable."""

    @abstractmethod
    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a passage with this metadata passes."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A spelling for caches: filters with equal keys match the same passages. It holds operands: never log it."""


@dataclass(frozen=True)
class And(Filter):
    """Every part matches."""

    parts: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether every part matches."""
        return all(part.matches(metadata) for part in self.parts)

    @cached_property
    def key(self) -> str:
        """The parts in one fixed order."""
        return f"and({','.join(sorted({part.key for part in self.parts}))})"


@dataclass(frozen=True)
class Or(Filter):
    """At least one part matches."""

    parts: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether at least one part matches."""
        return any(part.matches(metadata) for part in self.parts)

    @cached_property
    def key(self) -> str:
        """The parts in one fixed order."""
        return f"or({','.join(sorted({part.key for part in self.parts}))})"


@dataclass(frozen=True)
class Not(Filter):
    """The part does not match."""

    part: Filter

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether the part does not match."""
        return not self.part.matches(metadata)

    @cached_property
    def key(self) -> str:
        """The part's key, negated."""
        return f"not({self.part.key})"


@dataclass(frozen=True)
class Condition(Filter):
    """One operator on one metadata key.

    Attributes:
        path: the key, and the keys inside the mappings it leads to.
        op: a name of `OPERATORS`.
        operand: canonical, of the kind that the operator takes.
    """

    path: _Path
    op: str
    operand: Any

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether the stored value stands in the operator's relation to the operand."""
        return self.holds_for(metadata[self.path[0]]) if self.path[0] in metadata else self.holds_without()

    def holds_for(self, value: Any) -> bool:
        """Whether a passage passes that has this value under the first key of the path."""
        for name in self.path[1:]:
            value = value.get(name, _MISSING) if isinstance(value, Mapping) else _MISSING
        return OPERATORS[self.op][1](value, self.operand)

    def holds_without(self) -> bool:
        """Whether a passage passes that does not have the first key of the path."""
        return OPERATORS[self.op][1](_MISSING, self.operand)

    @cached_property
    def key(self) -> str:
        """Path, operator and operand."""
        return f"{json.dumps(self.path)}.{self.op}={spell(self.operand)}"


def parse_filter(filter: Mapping[Any, Any] | None) -> Filter | None:
    """Check a filter as users write it (see the module's text) and make it ready for matching.

    Args:
        filter: the mapping; None for no filter.

    Returns:
        The filter; None if there is none.

    Raises:
        InvalidTypeError: if `filter` is neither a mapping nor None.
        InvalidInputError: for an unknown operator, an operand of the wrong type, or more than `MAX_DEPTH` levels;
            the message names key, operator and type, never an operand.
    """
    if filter is None:
        return None
    if not isinstance(filter, Mapping):
        raise InvalidTypeError(f"filter must be a mapping such as {{'owner': 'amber'}} or None, got {_kind(filter)}")
    return _parse(filter, 1)


def filter_mask(filter: Filter | None, metadatas: Iterable[Mapping[str, Any] | None]) -> NDArray[np.bool_]:
    """Which passages pass: bool[n], in the order of `metadatas`; None among them stands for no metadata."""
    if filter is None:
        return np.fromiter((True for _ in metadatas), dtype=np.bool_)
    return np.fromiter((filter.matches(metadata or {}) for metadata in metadatas), dtype=np.bool_)


def _parse(node: Mapping[Any, Any], depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"filter is nested more than {MAX_DEPTH} levels deep: flatten it")
    if isinstance(node.get("path"), list | tuple):
        operators = {key: value for key, value in node.items() if key != "path"}
        return _conditions(_path(node["path"]), operators)
    parts = [_parse_key(key, value, depth) for key, value in node.items()]
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _parse_key(key: Any, value: Any, depth: int) -> Filter:
    if isinstance(key, str) and key in ("and", "or"):
        if not isinstance(value, list | tuple):
            raise InvalidInputError(f"filter: {key!r} takes a list of filters, got {_kind(value)}{_literal(key)}")
        for i, part in enumerate(value):
            if not isinstance(part, Mapping):
                raise InvalidInputError(f"filter: {key!r} takes a list of filters, but item {i} is {_kind(part)}")
        parts = tuple(_parse(part, depth + 1) for part in value)
        return And(parts) if key == "and" else Or(parts)
    if isinstance(key, str) and key == "not":
        if not isinstance(value, Mapping):
            raise InvalidInputError(f"filter: 'not' takes a filter, got {_kind(value)}{_literal(key)}")
        return Not(_parse(value, depth + 1))
    if isinstance(key, str) and key in OPERATORS:
        raise InvalidInputError(
            f"filter: operator {key!r} stands where a metadata key belongs: write {{'key': {{{key!r}: ...}}}} "
            f"or {{'path': ['key'], {key!r}: ...}}{_literal(key)}"
        )
    path = _path(key)
    return _conditions(path, value) if isinstance(value, Mapping) else _condition(path, "eq", value)


def _path(key: Any) -> _Path:
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            f"filter: a key must be a string, or a tuple or 'path' list of one or more strings, got {_kind(key)} "
            "(to compare a metadata key 'path' with a list write {'path': {'eq': [...]}})"
        )
    return tuple(str.__str__(name) for name in names)


def _conditions(path: _Path, operators: Mapping[Any, Any]) -> Filter:
    if not operators:
        raise InvalidInputError(
            f"filter on key {_show(path)}: no operator given; allowed are {_ALLOWED} "
            "(to compare with an empty mapping write {'eq': {}})"
        )
    parts = [_condition(path, op, operand) for op, operand in operators.items()]
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _condition(path: _Path, op: Any, operand: Any) -> Filter:
    if not isinstance(op, str) or op not in OPERATORS:
        given = _show((op,)) if isinstance(op, str) else f"of type {_kind(op)}"
        raise InvalidInputError(
            f"filter on key {_show(path)}: unknown operator {given}; allowed are {_ALLOWED} "
            "(a key inside a nested mapping is written {'path': ['a', 'b'], 'eq': ...})"
        )
    expected, _ = OPERATORS[op]
    items = operand if isinstance(operand, list | tuple | set | frozenset) else None
    ready: Any = None
    if expected == "a list":
        ready = None if items is None else frozenset(map(canonical, items))
        faulty = ready is None or any(is_faulty(item) for item in ready)
    else:
        ready = canonical(operand)
        kinds = _KINDS[expected]
        faulty = is_faulty(ready) or (kinds is not None and ready[0] not in kinds)
        if op == "text_match" and not faulty:
            ready = ("string", ready[1].casefold())
    if faulty:
        raise InvalidInputError(
            f"filter on key {_show(path)}: operator {op!r} needs {expected}, got {_kind(operand)} "
            f"(values must be JSON's own, not NaN, and at most {MAX_DEPTH} levels deep)"
        )
    return Condition(path, str.__str__(op), ready)


def _compare(relation: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(value: Any, operand: Canonical) -> bool:
        kind, content = canonical(value)
        return kind == operand[0] and relation(content, operand[1])

    return holds


def _contains(value: Any, operand: Canonical) -> bool:
    if isinstance(value, str):
        return operand[0] == "string" and operand[1] in value
    return isinstance(value, list | tuple) and any(canonical(item) == operand for item in value)


def _elements(value: Any) -> set[Canonical] | None:
    return {canonical(item) for item in value} if isinstance(value, list | tuple) else None


def _shares_any(value: Any, operand: frozenset[Canonical]) -> bool:
    elements = _elements(value)
    return elements is not None and not operand.isdisjoint(elements)


def _has_all(value: Any, operand: frozenset[Canonical]) -> bool:
    elements = _elements(value)
    return elements is not None and operand <= elements


def _is_empty(value: Any) -> bool:
    return value is _MISSING or value is None or (isinstance(value, str | list | tuple | Mapping) and not value)


_KINDS: dict[str, tuple[str, ...] | None] = {
    "a JSON value": None,
    "a number or a string": ("number", "string"),
    "true or false": ("boolean",),
    "a string": ("string",),
}

# Per operator: what its operand must be, and the test of a stored value (or `_MISSING`) against the ready operand.
OPERATORS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "eq": ("a JSON value", lambda value, operand: canonical(value) == operand),
    "ne": ("a JSON value", lambda value, operand: canonical(value) != operand),
    "in": ("a list", lambda value, operand: canonical(value) in operand),
    "nin": ("a list", lambda value, operand: canonical(value) not in operand),
    "gt": ("a number or a string", _compare(operator.gt)),
    "gte": ("a number or a string", _compare(operator.ge)),
    "lt": ("a number or a string", _compare(operator.lt)),
    "lte": ("a number or a string", _compare(operator.le)),
    "exists": ("true or false", lambda value, operand: (value is not _MISSING) is operand[1]),
    "is_empty": ("true or false", lambda value, operand: _is_empty(value) is operand[1]),
    "contains": ("a JSON value", _contains),
    "any": ("a list", _shares_any),
    "all": ("a list", _has_all),
    "text_match": ("a string", lambda value, operand: isinstance(value, str) and operand[1] in value.casefold()),
}
_ALLOWED = ", ".join(OPERATORS)


def _kind(value: Any) -> str:
    return type(value).__name__


def _show(path: _Path) -> str:
    shown = [name if len(name) <= 40 else f"{name[:40]}..." for name in path]
    return repr(shown[0]) if len(shown) == 1 else repr(shown)


def _literal(key: str) -> str:
    return f"; for a metadata key of that name write {{'path': [{key!r}], 'eq': ...}}"
