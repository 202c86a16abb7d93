"""What a retriever over a store was set to, kept beside the store: k, re-ranking, filter and the like.

Names and values are those of `SiDR.search`, so that every adapter reads what another one kept; an adapter's own
settings bear other names, and what a reader does not know it leaves alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidr_rag.errors import IndexFormatError, InvalidInputError, StorageError
from sidr_rag.search.filters import parse_filter

if TYPE_CHECKING:
    from sidr_rag.engine import SiDR

FILE = "retriever.json"
_MAX_BYTES = 1_000_000


def save_with_settings(sidr: SiDR, path: str | Path, settings: Mapping[str, Any]) -> None:
    """`SiDR.save`, and a retriever's settings beside the copy; a store opened read-only is left as it is.

    Raises:
        IndexFormatError: if the folder holds another store or other files.
        InvalidInputError: if a setting cannot be written as JSON; nothing is then saved.
        StorageError: if the disk refuses.
    """
    _as_json(settings)
    sidr.save(path)
    if not (sidr._store.read_only and sidr.path is not None and Path(path).resolve() == sidr.path.resolve()):
        save_settings(path, settings)


def save_settings(folder: str | Path, settings: Mapping[str, Any]) -> None:
    """Write a retriever's settings into a store's folder, in one step; other settings there are replaced.

    Args:
        folder: of a store.
        settings: JSON values by name; a `filter` may be written in every way that a search takes.

    Raises:
        InvalidInputError: if a value cannot be written as JSON; names the setting and the type.
        StorageError: if the disk refuses; the old settings are then kept.
    """
    path = Path(folder) / FILE
    content = _as_json(settings)
    partial = path.with_name(f"{FILE}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as e:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise StorageError(e.errno, f"the retriever's settings cannot be kept: {e.strerror}", str(path)) from e


def load_settings(folder: str | Path) -> dict[str, Any]:
    """Read what `save_settings` wrote; nothing if there is no such file. The caller checks names and values.

    Raises:
        IndexFormatError: naming the file, if it is no JSON object or no regular file.
        StorageError: if it cannot be read.
    """
    path = Path(folder) / FILE
    try:
        # O_NONBLOCK keeps a pipe of that name from blocking the open.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as e:
        raise StorageError(e.errno, f"cannot read: {e.strerror}", str(path)) from e
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IndexFormatError(f"{path}: is no file; remove it to use the default settings")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MAX_BYTES + 1)
    try:
        values = json.loads(content) if len(content) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise IndexFormatError(f"{path}: holds no settings; remove it to use the default settings")
    return values


def _as_json(settings: Mapping[str, Any]) -> bytes:
    values = {name: filter_json(value) if name == "filter" else value for name, value in settings.items()}
    for name, value in values.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as e:
            raise InvalidInputError(f"{name} of type {type(value).__name__} cannot be kept ({type(e).__name__})") from e
    return json.dumps(values, indent=1).encode("ascii") + b"\n"


def filter_json(filter: Mapping[Any, Any] | None) -> Any:
    """A filter in JSON's own types that matches the same passages: sets as lists, tuple keys as "path".

    Raises:
        InvalidInputError, InvalidTypeError: if it is no filter.
    """
    if filter is None:
        return None
    parse_filter(filter)
    return _node(filter)


def _node(node: Mapping[Any, Any]) -> dict[str, Any]:
    if isinstance(node.get("path"), (list, tuple)):
        return {"path": list(node["path"]), **{op: _plain(v) for op, v in node.items() if op != "path"}}
    parts = [_part(key, value) for key, value in node.items()]
    return parts[0] if len(parts) == 1 else {"and": parts}


def _part(key: Any, value: Any) -> dict[str, Any]:
    if not isinstance(key, str):
        operators = value if isinstance(value, Mapping) else {"eq": value}
        return {"path": list(key), **{op: _plain(v) for op, v in operators.items()}}
    if key in ("and", "or"):
        return {key: [_node(part) for part in value]}
    if key == "not":
        return {key: _node(value)}
    return {key: _plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=repr)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
