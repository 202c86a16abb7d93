"""Differentiable scores of query vectors against bags of tokens: the paper's, and the search's corpus-weighted ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sidr_rag.index.builder import invert
from sidr_rag.search.weighting import Weighting, idf
from sidr_rag.train.pool import Collection, gather

_LEAST = 1e-4


class BagMatrix:
    """The bags of some passages at one level, as a constant sparse 0/1 matrix [passages, dim] and its transpose."""

    def __init__(
        self, indptr: NDArray[np.int64], dims: NDArray[Any], dim: int, device: torch.device | None = None
    ) -> None:
        n = len(indptr) - 1
        self.shape = (n, dim)
        self._forward = _csr(indptr, dims, (n, dim)).to(device or "cpu")
        rows, term_dims, term_indptr, _ = invert(indptr, dims, dim)
        every = np.zeros(dim + 1, dtype=np.int64)
        every[term_dims.astype(np.int64) + 1] = np.diff(term_indptr)
        self._transposed = _csr(np.cumsum(every), rows, (dim, n)).to(device or "cpu")

    def scores(self, vectors: Tensor) -> Tensor:
        """<vector, bag> for each pair: f32[queries, passages], differentiable in the vectors.

        Args:
            vectors: f32[queries, dim].
        """
        product: Tensor = _Product.apply(vectors, self._forward, self._transposed)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, bags: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        return (bags @ vectors.t().contiguous()).t()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return (ctx.transposed @ gradient.t().contiguous()).t(), None, None


def _csr(indptr: NDArray[np.int64], columns: NDArray[Any], shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(np.ascontiguousarray(indptr)),
            torch.from_numpy(columns.astype(np.int64)),
            torch.ones(len(columns)),
            size=shape,
            check_invariants=False,
        )


class Bags:
    """The passages that a step's bag-of-tokens terms see.

    Attributes:
        pids: i64[n].
        levels: one `BagMatrix` for each level of the collection's index.
        lengths: f32[n], tokens of each passage relative to the collection's average.
    """

    def __init__(self, collection: Collection, pids: NDArray[np.int64], device: torch.device | None = None) -> None:
        self.pids = pids
        rows = collection.rows(pids)
        self.levels = []
        for level in collection.segment.levels:
            indptr, at = gather(level.doc_indptr, rows)
            self.levels.append(BagMatrix(indptr, level.doc_dims[at], collection.segment.dim, device))
        relative = np.maximum(collection.lengths[rows], 1.0) / max(collection.average_length, 1.0)
        self.lengths = torch.from_numpy(relative.astype(np.float32)).to(device or "cpu")


class CorpusWeighting(nn.Module):
    """The constants of `sidr_rag.search.Weighting`, as parameters that training may move.

    The score is the search's own: `s(d) * sum_l gain_l * sum_t w(t) * [count(t, d) >= n_l]`, with
    `w = (own words + blend * V_theta(q)) * idf ** exponent`, the blend of words outside the query apart where the first
    values have one, and
    `s(d) = (1 - slope + slope * length / average) ** -length_exponent`.

    Args:
        start: the first values; a `theta_blend` of None leaves the query's own words out.
        learned: whether the parameters take gradients.
    """

    def __init__(self, start: Weighting, learned: bool) -> None:
        super().__init__()
        self.levels = start.levels
        self._own_words = start.theta_blend is not None

        def parameter(value: float | list[float]) -> nn.Parameter:
            return nn.Parameter(torch.tensor(value), requires_grad=learned)

        self.log_gains = parameter([math.log(g / start.gains[0]) for g in start.gains[1:]])
        self.log_idf_exponent = parameter(math.log(max(start.idf_exponent, _LEAST)))
        self.log_length_exponent = parameter(math.log(max(start.length_exponent, _LEAST)))
        self.length_slope_logit = parameter(_logit(start.length_slope))
        blend = 1.0 if start.theta_blend is None else start.theta_blend
        self.log_blend = parameter(math.log(max(blend, _LEAST)))
        self.log_expansion_blend = (
            None if start.expansion_blend is None else parameter(math.log(max(start.expansion_blend, _LEAST)))
        )

    def query_weights(self, theta: Tensor, own: Tensor, idf_values: Tensor) -> Tensor:
        """The w of each query on its active dimensions: f32, shaped like `theta`.

        Args:
            theta: f32[queries, k], V_theta on the active dimensions.
            own: f32[queries, k], 1 where the dimension is one of the query's own tokens.
            idf_values: f32[queries, k] of the collection.
        """
        blended = own + self._shares(own) * theta if self._own_words else theta
        return blended * idf_values ** self.log_idf_exponent.exp()

    def _shares(self, own: Tensor) -> Tensor:
        """V_theta's share: a number, or f32[queries, k] where own words have another than the rest."""
        share = self.log_blend.exp()
        if self.log_expansion_blend is None:
            return share
        return torch.where(own > 0, share, self.log_expansion_blend.exp())

    def scores(self, vectors: Tensor, bags: Bags) -> Tensor:
        """Levelled, length-weighted scores: f32[queries, passages].

        Args:
            vectors: f32[queries, dim], w of each query.
            bags: the passages; their levels are those of the constants.
        """
        total = bags.levels[0].scores(vectors)
        for log_gain, level in zip(self.log_gains, bags.levels[1:], strict=True):
            total = total + log_gain.exp() * level.scores(vectors)
        slope = torch.sigmoid(self.length_slope_logit)
        factors = (1.0 - slope + slope * bags.lengths) ** -self.log_length_exponent.exp()
        return total * factors

    def constants(self) -> Weighting:
        """The present values, rounded to four digits, for the engine."""

        def number(value: Tensor) -> float:
            return float(f"{value.item():.4g}")

        return Weighting(
            levels=self.levels,
            gains=(1.0, *(number(gain) for gain in self.log_gains.exp())),
            idf_exponent=number(self.log_idf_exponent.exp()),
            length_exponent=number(self.log_length_exponent.exp()),
            length_slope=number(torch.sigmoid(self.length_slope_logit)),
            theta_blend=number(self.log_blend.exp()) if self._own_words else None,
            expansion_blend=None if self.log_expansion_blend is None else number(self.log_expansion_blend.exp()),
        )


def _logit(share: float) -> float:
    clipped = min(max(share, _LEAST), 1 - _LEAST)
    return math.log(clipped / (1 - clipped))


def idf_of(collection: Collection) -> NDArray[np.float32]:
    """f32[dim]: the search's idf of every dimension in this collection."""
    return idf(collection.index.df, collection.index.n_live).astype(np.float32)


def dense_rows(dims: Tensor, weights: Tensor, dim: int) -> Tensor:
    """f32[n, dim] from padded dimensions i64[n, k] and weights f32[n, k] (0 at padding); differentiable."""
    return torch.zeros((len(dims), dim), dtype=weights.dtype, device=weights.device).scatter_add(1, dims, weights)


def columns_of(groups: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The distinct pids of several groups, in order of first appearance: i64[n]."""
    joined = np.concatenate([np.asarray(g, dtype=np.int64).ravel() for g in groups])
    _, first = np.unique(joined, return_index=True)
    return joined[np.sort(first)]
