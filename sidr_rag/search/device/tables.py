"""Query weights as tables on a device: for each level, a row per dimension and a column per query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sidr_rag.search.device.bounds import scales
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors


@dataclass(frozen=True)
class Tables:
    """The weights of a batch of queries.

    Attributes:
        by_threshold: for each level n_l, [dim, columns]: gain_l * w(t), scaled; 0 where a query has no weight.
        n_queries: number of queries; further columns are zero.
        most_terms: the most (level, dimension) pairs of a query.
    """

    by_threshold: dict[int, Tensor]
    n_queries: int
    most_terms: int

    @property
    def columns(self) -> int:
        """Queries, rounded up to what the device multiplies."""
        return next(iter(self.by_threshold.values())).shape[1]

    @classmethod
    def of(
        cls, vectors: SparseVectors, weighting: Weighting, columns: int, dtype: torch.dtype, device: torch.device
    ) -> Tables:
        """From w(t) of the queries, non-negative and finite."""
        n = len(vectors)
        queries = np.repeat(np.arange(n), np.diff(vectors.indptr))
        weights = vectors.weights.astype(np.float64)
        largest = np.zeros(n)
        np.maximum.at(largest, queries, weights)
        scale = scales(largest * max(weighting.gains))
        smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        tables = {}
        for threshold, gain in zip(weighting.levels, weighting.gains, strict=True):
            values = torch.from_numpy(gain * weights * scale[queries]).to(dtype)
            # No weight may vanish: a passage that only it would find must keep a positive sum.
            values[torch.from_numpy(weights > 0) & (values == 0)] = smallest
            table = torch.zeros((vectors.dim, columns), dtype=dtype)
            table[torch.from_numpy(vectors.dims.astype(np.int64)), torch.from_numpy(queries)] = values
            tables[threshold] = table.to(device, non_blocking=True)
        most = int(np.diff(vectors.indptr).max(initial=0)) * len(weighting.levels)
        return cls(tables, n, most)
