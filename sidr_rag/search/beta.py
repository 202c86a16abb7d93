"""Beta search where it is to run: by NumPy or compiled code on the processor, or on a torch device."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, MissingExtraError
from sidr_rag.fork_lock import ForkLock
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.search.device.presence import cuda_is_here
from sidr_rag.search.searcher import KernelChoice, SearchPool, SeqHits, search_index
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors

if TYPE_CHECKING:
    from sidr_rag.search.device.searcher import DeviceSearcher

BetaKernel = Literal["auto", "numpy", "numba", "torch", "triton"]


def check_kernel(kernel: Any, device: str) -> None:
    """Refuse a kernel that cannot run on a device.

    Args:
        kernel: "auto" (on a CUDA device Triton's kernels, or torch's operations where Triton is absent; on the
            processor NumPy or compiled code, by the store's size), "numpy" or "numba" (on the processor, whatever
            `device` encodes), "torch" (torch's operations on any device) or "triton" (on a CUDA device).
        device: "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        InvalidInputError: if there is no such kernel, or it needs a CUDA device and has none.
        MissingExtraError: if it needs torch or Triton, and that is absent.
    """
    if kernel not in get_args(BetaKernel):
        known = ", ".join(map(repr, get_args(BetaKernel)))
        raise InvalidInputError(f"kernel={kernel!r} is not known; choose one of {known}")
    if kernel not in ("torch", "triton"):
        return
    for package in ("torch", kernel):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "gpu", f"kernel={kernel!r}")
    if kernel == "triton" and os.environ.get("TRITON_INTERPRET") != "1":
        if device == "cpu":
            raise InvalidInputError(
                "kernel='triton' needs a CUDA device, but device='cpu'; pass device='cuda', or kernel='auto' or 'torch'"
            )
        if not cuda_is_here():
            raise InvalidInputError(
                f"kernel='triton' needs a CUDA device, but device={device!r} and torch finds none here; "
                "pass kernel='auto' or 'torch'"
            )


class BetaSearcher:
    """Exact beta search of one store's states; the results have the same bits wherever it runs.

    Safe to use from many threads. What a device holds is copied there by the first search and brought up to date by
    those that follow: new segments are copied, and those that are gone make room. A forked child cannot use what its
    parent has on a device: it searches on the processor, and a warning says so.

    Args:
        pool: threads for searches on the processor.
        kernel: see `check_kernel`.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        InvalidInputError, MissingExtraError: see `check_kernel`.
    """

    def __init__(self, pool: SearchPool, kernel: BetaKernel = "auto", device: str = "auto") -> None:
        check_kernel(kernel, device)
        self._pool = pool
        self._kernel = kernel
        self._device = device
        self._processor_kernel: KernelChoice = kernel if kernel == "numpy" or kernel == "numba" else "auto"
        self._lock = ForkLock()
        self._made: tuple[int, DeviceSearcher | None] | None = None  # by this process id; None: on the processor
        self._inherited: object = None

    @property
    def nbytes(self) -> int:
        """Bytes of the index on the device; 0 where the processor searches, and before the first search."""
        made = self._made
        return 0 if made is None or made[1] is None or made[0] != os.getpid() else made[1].nbytes

    def search(
        self,
        index: BotIndex,
        vectors: SparseVectors,
        weighting: Weighting,
        k: int,
        *,
        allowed: Callable[[SegmentView], NDArray[np.bool_] | None] | None = None,
    ) -> list[SeqHits]:
        """See `search_index`, whose arguments and results these are.

        Raises:
            InvalidInputError: if a dimension is outside the index, or torch finds no such device.
        """
        searcher = self._searcher()
        if searcher is not None:
            return searcher.search(index, vectors, weighting, k, allowed=allowed)
        return search_index(
            index, vectors, weighting, k, allowed=allowed, pool=self._pool, kernel=self._processor_kernel
        )

    def close(self) -> None:
        """Let go of the device's memory; a later search takes it again."""
        with self._lock:
            made, self._made = self._made, None
            if made is None or made[1] is None:
                return
            if made[0] == os.getpid():
                made[1].close()
            else:
                self._inherited = made  # not ours to free

    def _searcher(self) -> DeviceSearcher | None:
        if self._processor_kernel != "auto":
            return None
        with self._lock:
            if self._made is None:
                self._made = os.getpid(), self._make()
            process, searcher = self._made
            if searcher is not None and process != os.getpid():
                self._inherited = self._made  # freeing the parent's memory here would fail
                self._made = os.getpid(), None
                _warn_of_fork()
            return self._made[1]

    def _make(self) -> DeviceSearcher | None:
        device = self._device
        if device == "auto":
            device = "cuda" if cuda_is_here() else "cpu"
        if device == "cpu" and self._kernel == "auto":
            return None
        import torch

        from sidr_rag.search.device.scorer import scorer_for
        from sidr_rag.search.device.searcher import DeviceSearcher

        if device != "cpu":
            # A private name of torch: where it is absent, torch's own error tells the same.
            if getattr(torch.cuda, "_is_in_bad_fork", bool)():
                _warn_of_fork()
                return None
            number = int(device.partition(":")[2] or 0)
            if not torch.cuda.is_available() or number >= torch.cuda.device_count():
                raise InvalidInputError(f"device={device!r}: torch finds no such CUDA device here; pass device='auto'")
        kernel: Any = self._kernel
        return DeviceSearcher(device, scorer=scorer_for(torch.device(device), kernel), pool=self._pool)


def _warn_of_fork() -> None:
    warnings.warn(
        "this process was forked after its parent began to use a torch device, which it cannot use itself: beta search "
        "runs on the processor here, with the same results; start processes by 'spawn' to use the device in them",
        RuntimeWarning,
        stacklevel=2,
    )
