"""What a way of summing on a device must offer, and the choice between the two that there are."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from sidr_rag.search.device.part import Part
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


def scorer_for(device: torch.device) -> Scorer:
    """Triton's kernels on a GPU where Triton is installed, torch's operations elsewhere."""
    if device.type == "cuda":
        try:
            from sidr_rag.search.device.triton_scorer import TritonScorer
        except ImportError:
            return TorchScorer()
        return TritonScorer()
    return TorchScorer()
