"""Which code runs a model, and its loading at first use.

The rule for `backend="auto"`: with CUDA, torch encodes both sides. On CPU, NumPy encodes queries, so that a process
answers without waiting for torch to be imported; torch encodes passages where it is installed, else NumPy does. Where
torch is installed but not imported, NumPy encodes passages as well until it has read so many tokens that the import
would have paid. Architectures other than BERT are run by transformers.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.checkpoint import Weights, load_binary_layers, load_weights
from sidr_rag.encoder.config import ModelConfig, Side
from sidr_rag.encoder.settings import check_choice
from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError

Backend = Literal["auto", "numpy", "torch"]
DType = Literal["auto", "float32", "bfloat16"]
Summarized: TypeAlias = Callable[[NDArray[np.float32], Callable[[], list[NDArray[np.float32]]]], None]
"""Takes what `Body.summaries` gives for some sequences, and a function for what `Body.token_states` gives."""

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
# Torch's import takes one to three seconds, and it saves about 0.2 ms a token.
_TORCH_PAYS_FROM = 8_000
_BINARY = "binary"
_GPU_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


class Body(Protocol):
    """Token ids to one dense vector a text, or one a token; safe to share between threads."""

    batch_tokens: int

    def summaries(
        self,
        sequences: Sequence[Sequence[int]],
        pooling: str,
        kinds: Sequence[Sequence[int]] | None = None,
    ) -> NDArray[np.float32]:
        """f32[len(sequences), hidden]: mean or first of the last hidden states."""
        ...

    def token_states(self, sequences: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """The last hidden states of each sequence, f32[tokens, hidden], special tokens included."""
        ...


class Backbone(Protocol):
    """Token ids to pooled vocabulary logits; safe to share between threads.

    Attributes:
        batch_tokens: tokens, padding included, that it reads well at once.
        screens: whether `best_logits` is to be used where few dimensions are wanted.
    """

    batch_tokens: int
    screens: bool

    def pooled_logits(
        self, sequences: Sequence[Sequence[int]], summarized: Summarized | None = None
    ) -> NDArray[np.float32]:
        """f32[len(sequences), dim]; sequences carry their first and last special token.

        Where the model has a dense head, `summarized` is told what its body makes of them.
        """
        ...

    def best_logits(
        self,
        sequences: Sequence[Sequence[int]],
        own: Sequence[NDArray[np.int32]],
        k: int,
        summarized: Summarized | None = None,
    ) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """For each sequence dims (ascending) and logits: its own ones, and all that can be among the k greatest."""
        ...


class Backbones:
    """The two sides' encoders of one model, each built when first asked for.

    Args:
        folder: the model folder.
        config: its configuration.
        token_ids: i32[dim], the token id of every dimension.
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: "float32", "bfloat16", or "auto" (bfloat16 where torch and the processor multiply it); NumPy is float32.
        backend: "auto" (see the module), "numpy" or "torch".

    Raises:
        InvalidInputError: if an argument is none of these, or the model cannot run on that backend.
        MissingExtraError: if the arguments or the model call for torch and it is absent.
    """

    def __init__(
        self, folder: Path, config: ModelConfig, token_ids: NDArray[np.int32], *, device: str, dtype: str, backend: str
    ) -> None:
        check_choice("backend", backend, get_args(Backend))
        check_choice("dtype", dtype, get_args(DType))
        if not isinstance(device, str):
            raise InvalidTypeError(
                f"device has type {type(device).__name__}; expected a string such as 'cpu' or 'cuda:0'"
            )
        if not _DEVICE.fullmatch(device):
            raise InvalidInputError(f"device is {device!r}; expected 'auto', 'cpu', 'cuda' or 'cuda:N'")
        if backend == "numpy" and device.startswith("cuda"):
            raise InvalidInputError(f"backend 'numpy' runs on the CPU, but device is {device!r}; use backend='torch'")
        if backend == "numpy" and not config.native:
            raise InvalidInputError(f"backend 'numpy' cannot run a {config.architecture!r} model; use backend='torch'")
        self._torch = importlib.util.find_spec("torch") is not None
        if not self._torch and (backend == "torch" or device.startswith("cuda") or not config.native):
            raise MissingExtraError("torch", "torch", f"the model {config.name!r} with backend={backend!r}")
        self._folder = folder
        self._config = config
        self._token_ids = token_ids
        self._device = device
        self._dtype = dtype
        self._backend = backend
        self._lock = threading.Lock()
        self._built: dict[tuple[str, str, bool], Backbone] = {}
        self._weights: dict[str, Weights] = {}
        self._without_torch: int | None = None  # tokens that NumPy read because torch is not imported

    def choice(self, side: Side, n_tokens: int | None = None) -> Literal["numpy", "torch"]:
        """The backend that encodes this side; of so many tokens, if given, which are then counted as encoded."""
        if self._backend == "numpy":
            return "numpy"
        if self._backend == "torch" or not self._config.native or self._cuda():
            return "torch"
        if side == "query" or not self._torch:
            return "numpy"
        if n_tokens is None or self._dtype != "float32" or (self._without_torch is None and "torch" in sys.modules):
            return "torch"
        # Counted without a lock: a token lost to a race only delays the import.
        self._without_torch = (self._without_torch or 0) + n_tokens
        return "numpy" if self._without_torch <= _TORCH_PAYS_FROM else "torch"

    def get(self, side: Side, n_tokens: int | None = None, *, binary: bool = False) -> Backbone:
        """The encoder of this side, loaded by the first call; other threads wait for it.

        Args:
            side: "query" or "passage".
            n_tokens: see `choice`.
            binary: whether its last layers are those of binary beta's queries.
        """
        backend = self.choice(side, n_tokens)
        key = (backend, self._weight_key(side), binary)
        with self._lock:
            if key not in self._built:
                self._built[key] = self._build(backend, side, binary=binary)
            return self._built[key]

    def get_body(self, side: Side, n_tokens: int | None = None) -> Body:
        """The same without the vocabulary head.

        Raises:
            InvalidInputError: if transformers runs the model.
        """
        backbone = self.get(side, n_tokens)
        body: Body | None = getattr(backbone, "body", None)
        if body is None:
            raise InvalidInputError(
                f"model {self._config.name!r}: of a {self._config.architecture!r} only vocabulary weights can be had; "
                "use reranker='theta', or give a BiEncoder"
            )
        return body

    def _weight_key(self, side: Side) -> str:
        return "shared" if self._config.shared_encoder else side

    def _build(self, backend: str, side: Side, *, binary: bool) -> Backbone:
        if backend == "numpy":
            from sidr_rag.encoder.numpy_bert import NumpyBert

            return NumpyBert(self._side_weights(side, binary=binary), self._config, self._token_ids)
        from sidr_rag.encoder.torch_bert import TorchBert, torch_device

        device = torch_device(self._device)
        if not self._config.native:
            from sidr_rag.encoder.transformers_mlm import TransformersMlm

            return TransformersMlm(self._folder, self._token_ids, device, self._dtype)
        return TorchBert(self._side_weights(side, binary=binary), self._config, self._token_ids, device, self._dtype)

    def _side_weights(self, side: Side, *, binary: bool = False) -> Weights:
        """Kept, so that all that runs on this side shares one copy in memory."""
        key = self._weight_key(side)
        if key not in self._weights:
            self._weights[key] = load_weights(self._folder, self._config, side)
        if not binary:
            return self._weights[key]
        if _BINARY not in self._weights:
            self._weights[_BINARY] = load_binary_layers(self._folder, self._config)
        return {**self._weights[key], **self._weights[_BINARY]}

    def _cuda(self) -> bool:
        if self._device != "auto":
            return self._device.startswith("cuda")
        # Asking torch costs its import, so it is asked only where a driver is, or where it is imported already.
        if sys.modules.get("torch") is None and not (self._torch and any(driver.exists() for driver in _GPU_DRIVERS)):
            return False
        import torch

        return torch.cuda.is_available()
