"""JSON values in a form that compares by JSON's idea of equality, hashes, and can be spelled."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_DEPTH = 64

Canonical = tuple[str, Any]
"""The kind of a JSON value and its hashable content: equal if and only if the values are."""

OTHER: Canonical = ("other", None)


def canonical(value: Any, depth: int = 1) -> Canonical:
    """The kind and hashable content of a JSON value; of anything else, and of what lies too deep, `OTHER`."""
    if value is None:
        return ("null", None)
    if isinstance(value, bool | np.bool_):
        return ("boolean", bool(value))
    if isinstance(value, str):
        return ("string", str.__str__(value))
    if isinstance(value, int | np.integer):
        return ("number", int(value))
    if isinstance(value, float | np.floating):
        return OTHER if math.isnan(value) else ("number", float(value))
    if depth <= MAX_DEPTH:
        if isinstance(value, list | tuple):
            return ("list", tuple(canonical(item, depth + 1) for item in value))
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return (
                "mapping",
                frozenset((str.__str__(name), canonical(item, depth + 1)) for name, item in value.items()),
            )
    return OTHER


def is_faulty(value: Canonical) -> bool:
    """Whether the value, or a part of it, was none of JSON's."""
    kind, content = value
    if kind == "list":
        return any(map(is_faulty, content))
    if kind == "mapping":
        return any(is_faulty(item) for _, item in content)
    return value is OTHER


def spell(value: Any) -> str:
    """One unambiguous spelling per canonical value or set of them; 1 and 1.0 are spelled alike."""
    if isinstance(value, frozenset):
        return f"({','.join(sorted(map(spell, value)))})"
    kind, content = value
    if kind == "number":
        whole = isinstance(content, int) or content.is_integer()
        return f"{int(content):x}" if whole else str(content.hex())
    if kind == "list":
        return f"[{','.join(map(spell, content))}]"
    if kind == "mapping":
        return f"{{{','.join(sorted(f'{json.dumps(name)}:{spell(item)}' for name, item in content))}}}"
    return json.dumps(content)
