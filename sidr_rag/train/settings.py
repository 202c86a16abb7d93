"""Dataclasses from plain mappings, every complaint naming the setting, the value and what was expected."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sidr_rag.errors import InvalidInputError, InvalidTypeError

T = TypeVar("T")


def build(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Make a dataclass from a mapping such as YAML gives; nested dataclasses come from nested mappings.

    Args:
        kind: the dataclass; its annotations may be bool, int, float, str, Path, Literal, tuple[X, ...],
            dict[str, X], dataclasses, and unions of those with None.
        values: its settings; what is left out takes its default.
        where: the setting's own place in the file, for messages.

    Raises:
        InvalidInputError: for an unknown or missing setting, or a value that cannot be used.
        InvalidTypeError: for a value of another type.
    """
    if not isinstance(values, Mapping):
        raise InvalidTypeError(f"{where or 'the configuration'} is a {type(values).__name__}; expected a mapping")
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(str(key) for key in values if key not in known)
    if unknown:
        raise InvalidInputError(f"{_path(where, unknown[0])} is no setting; known here: {', '.join(known)}")
    missing = [
        name
        for name, field in known.items()
        if name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise InvalidInputError(f"{_path(where, missing[0])} is missing; it has no default")
    return kind(**{key: _converted(hints[key], value, _path(where, key)) for key, value in values.items()})


def plain(value: Any) -> Any:
    """The mapping, list or scalar from which `build` makes the same value."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def _path(where: str, name: Any) -> str:
    return f"{where}.{name}" if where else str(name)


def _converted(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, where)
    if origin is Literal:
        if value not in arguments:
            raise InvalidInputError(f"{where} is {value!r}; expected {' or '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise InvalidTypeError(f"{where} is {value!r}; expected a list")
        return tuple(_converted(arguments[0], entry, f"{where}[{i}]") for i, entry in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InvalidTypeError(f"{where} is {value!r}; expected a mapping")
        return {str(key): _converted(arguments[1], entry, _path(where, key)) for key, entry in value.items()}
    if is_dataclass(kind) and isinstance(kind, type):
        return build(kind, value, where)
    return _scalar(kind, value, where)


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    errors = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _converted(kind, value, where)
            except (InvalidInputError, InvalidTypeError) as error:
                errors.append(error)
    raise errors[-1]


def _scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is Path and isinstance(value, (str, Path)):
        return Path(value)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    hint = "; in YAML write 1.0e-5, not 1e-5" if kind is float and isinstance(value, str) else ""
    raise InvalidTypeError(f"{where} is {value!r}, of type {type(value).__name__}; expected {kind.__name__}{hint}")
