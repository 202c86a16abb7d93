"""Named arrays in one file: the safetensors layout, memory-mapped, checksummed, and validated before use."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import IndexFormatError, StorageError

_DTYPES = {
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "U64": np.uint64,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
}
_NAMES = {np.dtype(v): k for k, v in _DTYPES.items()}
_MAX_HEADER = 1 << 20


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, str]) -> None:
    """Write one-dimensional arrays to a file that is complete and on disk when this returns.

    The file appears under its name only when whole (written beside it, synced, renamed), readable by the user alone.

    Raises:
        StorageError: if the disk refuses; no file is left behind.
    """
    # Wide items first, so that every array starts at a multiple of its item size.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {}
    checks: dict[str, str] = {}
    offset = 0
    for name, array in ordered:
        size = array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": [len(array)], "data_offsets": [offset, offset + size]}
        checks[f"crc32.{name}"] = str(zlib.crc32(_bytes_of(array)))
        offset += size
    header["__metadata__"] = {**meta, **checks}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    written = partial
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(len(head).to_bytes(8, "little"))
            f.write(head)
            for _, array in ordered:
                f.write(_bytes_of(array))
            f.flush()
            os.fsync(f.fileno())
        partial.replace(path)
        written = path
        sync_folder(path.parent)
    except OSError as e:
        with contextlib.suppress(OSError):
            written.unlink(missing_ok=True)  # under its own name, too, if that entry could not be made durable
        raise StorageError(e.errno, f"could not write {path.name}: {e.strerror}", str(path)) from e


def read_arrays(path: Path, *, own: bool = False) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Map a file's arrays read-only, after checking header, bounds and checksums.

    Args:
        path: the file.
        own: whether this process has just written it; the arrays' bytes are then not read now.

    Returns:
        The arrays by name (views of the mapped file) and the file's metadata.

    Raises:
        IndexFormatError: naming the file and the fault; also for a symbolic link or a missing file.
    """
    try:
        # A pipe in place of the file must not make the opening wait for a writer.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as e:
        raise IndexFormatError(f"{path}: cannot be opened ({e.strerror})") from e
    try:
        size = os.fstat(fd).st_size
        if size < 10:
            raise IndexFormatError(f"{path}: {size} bytes is too short for a segment file")
        mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    except OSError as e:
        raise IndexFormatError(f"{path}: cannot be mapped ({e.strerror})") from e
    finally:
        os.close(fd)
    head_size = int.from_bytes(mapped[:8], "little")
    if head_size > _MAX_HEADER or 8 + head_size > size:
        raise IndexFormatError(f"{path}: header of {head_size} bytes does not fit the file")
    try:
        header = json.loads(mapped[8 : 8 + head_size])
        meta = {str(k): str(v) for k, v in header.pop("__metadata__", {}).items()}
        entries = {name: (np.dtype(_DTYPES[e["dtype"]]), e["shape"], e["data_offsets"]) for name, e in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise IndexFormatError(f"{path}: unreadable header ({type(e).__name__})") from e
    body = np.frombuffer(mapped, dtype=np.uint8)[8 + head_size :]
    arrays = {name: _view(path, body, name, entry) for name, entry in entries.items()}
    for name, array in () if own else arrays.items():
        if meta.get(f"crc32.{name}") != str(zlib.crc32(_bytes_of(array))):
            raise IndexFormatError(f"{path}: array {name!r} does not match its checksum")
    return arrays, meta


def sync_folder(folder: Path) -> None:
    """Make a folder's own entries durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _view(path: Path, body: NDArray[np.uint8], name: str, entry: tuple[np.dtype[Any], Any, Any]) -> NDArray[Any]:
    dtype, shape, offsets = entry
    ok = (
        isinstance(shape, list)
        and len(shape) == 1
        and isinstance(offsets, list)
        and len(offsets) == 2
        and all(isinstance(x, int) and not isinstance(x, bool) for x in (*shape, *offsets))
        and 0 <= offsets[0] <= offsets[1] <= len(body)
        and offsets[1] - offsets[0] == shape[0] * dtype.itemsize
    )
    if not ok:
        raise IndexFormatError(f"{path}: array {name!r} does not fit the file")
    data = body[offsets[0] : offsets[1]]
    return data.view(dtype)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B") if array.nbytes else memoryview(b"")
