"""Reads named tensors from the weight files of a model folder: safetensors, or `*.bin` without unpickling objects."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, MissingExtraError, ModelNotFoundError

_SAFETENSORS = "model.safetensors"
_SHARDED = "model.safetensors.index.json"
_BIN = "pytorch_model.bin"


class WeightFiles(Protocol):
    """Named tensors, read one by one."""

    def names(self) -> frozenset[str]:
        """Every tensor's name."""
        ...

    def tensor(self, name: str) -> NDArray[Any]:
        """The tensor as it is stored; bfloat16 is widened to float32."""
        ...

    def location(self, name: str | None = None) -> Path:
        """The file that holds the tensor, or the first one."""
        ...


def weight_paths(folder: Path) -> list[Path]:
    """The weight files of a folder, safetensors before `*.bin`.

    Raises:
        ModelNotFoundError: if there are none, or a part of a sharded checkpoint is absent.
        InvalidInputError: if the index of a sharded checkpoint cannot be read.
    """
    if (folder / _SAFETENSORS).is_file():
        return [folder / _SAFETENSORS]
    index = folder / _SHARDED
    if index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            paths = [folder / shard for shard in shards if Path(shard).name == shard]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidInputError(f"model: {index} is no index of a sharded checkpoint") from None
        absent = [path for path in paths if not path.is_file()]
        if absent or not paths:
            raise ModelNotFoundError(f"model: {absent[0] if absent else index} is absent; {index.name} names it")
        return paths
    if (folder / _BIN).is_file():
        return [folder / _BIN]
    raise ModelNotFoundError(f"model: {folder} holds no weights; expected {_SAFETENSORS}, {_SHARDED} or {_BIN}")


@contextmanager
def open_weights(folder: Path) -> Iterator[WeightFiles]:
    """Open the folder's weight files for reading.

    Raises:
        ModelNotFoundError: if there are none.
        MissingExtraError: if only a `*.bin` is there and torch is absent.
        InvalidInputError: if a file is damaged or holds anything but tensors.
    """
    paths = weight_paths(folder)
    if paths[0].suffix == ".bin":
        yield _BinFile(paths[0])
        return
    with ExitStack() as stack:
        yield _Safetensors(paths, stack)


class _Safetensors:
    def __init__(self, paths: list[Path], stack: ExitStack) -> None:
        from safetensors import SafetensorError, safe_open

        self._first = paths[0]
        self._homes: dict[str, tuple[Path, Any]] = {}
        self._error = SafetensorError
        for path in paths:
            try:
                handle = stack.enter_context(safe_open(path, framework="numpy"))
            except (SafetensorError, OSError) as error:
                raise InvalidInputError(f"model: {path} is no readable safetensors file ({error})") from None
            for name in handle.keys():  # noqa: SIM118 -- a file handle, not a mapping
                self._homes[name] = (path, handle)

    def names(self) -> frozenset[str]:
        return frozenset(self._homes)

    def tensor(self, name: str) -> NDArray[Any]:
        path, handle = self._homes[name]
        try:
            if handle.get_slice(name).get_dtype() == "BF16":
                return _read_bfloat16(path, name)
            return np.asarray(handle.get_tensor(name))
        except self._error as error:
            raise InvalidInputError(f"model: {path}: tensor {name!r} cannot be read ({error})") from None

    def location(self, name: str | None = None) -> Path:
        return self._homes[name][0] if name is not None else self._first


def _read_bfloat16(path: Path, name: str) -> NDArray[np.float32]:
    """NumPy has no bfloat16, but its bits are the upper half of a float32's."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[name]
        start, end = entry["data_offsets"]
        file.seek(8 + length + start)
        halves = np.frombuffer(file.read(end - start), dtype="<u2")
    widened: NDArray[np.float32] = (halves.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
    return widened


class _BinFile:
    def __init__(self, path: Path) -> None:
        if importlib.util.find_spec("torch") is None:
            raise MissingExtraError("torch", "torch", f"reading {path.name}")
        import pickle

        import torch

        self._path = path
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
            kind = type(error).__name__
            raise InvalidInputError(f"model: {path} is no file of plain tensors ({kind}); nothing was run") from None
        if not isinstance(loaded, dict):
            raise InvalidInputError(f"model: {path} holds a {type(loaded).__name__}; expected named tensors")
        self._tensors = {str(k): v for k, v in loaded.items() if isinstance(v, torch.Tensor)}

    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def tensor(self, name: str) -> NDArray[Any]:
        tensor = self._tensors[name]
        return np.asarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())

    def location(self, name: str | None = None) -> Path:
        return self._path
