"""What a way of summing on a device must offer, and the choice between the two that there are."""

from __future__ import annotations

import contextlib
import warnings
from typing import Literal, Protocol

import torch
from torch import Tensor

from sidr_rag.errors import InvalidInputError
from sidr_rag.search.device.part import Part, PartLevel
from sidr_rag.search.device.tables import Tables
from sidr_rag.search.device.torch_scorer import TorchScorer


class Scorer(Protocol):
    """Approximate scores of a part's rows, in blocks of `BLOCK` rows; rows that are not allowed score 0."""

    table_type: torch.dtype
    frequent_share: float
    most_frequent: int

    def columns(self, n_queries: int) -> int:
        """Table columns for a batch."""
        ...

    def block_maxima(self, part: Part, tables: Tables, factors: Tensor | None, allowed: Tensor | None) -> Tensor:
        """The best sum in each block, f32[queries, blocks]."""
        ...

    def block_sums(
        self,
        part: Part,
        tables: Tables,
        factors: Tensor | None,
        allowed: Tensor | None,
        queries: Tensor,
        blocks: Tensor,
    ) -> Tensor:
        """All sums of some blocks, each for one query: f32[pairs, BLOCK]."""
        ...


def on(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Makes a CUDA device this thread's current one: Triton starts its kernels there, wherever the tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def scorer_for(device: torch.device, kernel: Literal["auto", "torch", "triton"] = "auto") -> Scorer:
    """Triton's kernels or torch's operations.

    Args:
        device: where they are to run.
        kernel: "auto" takes Triton on a CUDA device, if it is installed and can compile there, and torch elsewhere.

    Raises:
        InvalidInputError: if `kernel` is "triton" and Triton cannot compile here.
    """
    if kernel == "torch" or (kernel == "auto" and device.type != "cuda"):
        return TorchScorer()
    try:
        from sidr_rag.search.device.triton_scorer import TritonScorer

        scorer = TritonScorer()
        _try_out(scorer, device)
    except Exception as error:  # whatever a compiler, a driver or a missing package may raise
        if kernel == "triton":
            raise InvalidInputError(
                f"kernel='triton': its kernels cannot be compiled here ({type(error).__name__}: {error}); "
                "Triton needs a C compiler; or pass kernel='torch'"
            ) from error
        if not isinstance(error, ImportError):
            warnings.warn(
                f"Triton's kernels cannot be compiled here ({type(error).__name__}: {error}), so torch's operations "
                "search instead, with the same results; Triton needs a C compiler",
                RuntimeWarning,
                stacklevel=2,
            )
        return TorchScorer()
    return scorer


def _try_out(scorer: Scorer, device: torch.device) -> None:
    """Compile a kernel and run it on one passage, so that what cannot work does not show in a search."""
    none = torch.empty(0, dtype=torch.int32)
    starts, dims = torch.tensor([0, 1], dtype=torch.int32), torch.zeros(1, dtype=torch.int16)
    level = PartLevel(1, starts, dims, 1, none, torch.empty((0, 1), dtype=torch.int32))
    part = Part(("",), (0, 1), (level,), torch.ones(1)).to(device)
    table = torch.ones((1, scorer.columns(1)), dtype=scorer.table_type, device=device)
    with on(device):
        found = float(scorer.block_maxima(part, Tables({1: table}, 1, 1), None, None)[0, 0])
    if found != 1.0:
        raise RuntimeError(f"a sum of 1 came out as {found}")
