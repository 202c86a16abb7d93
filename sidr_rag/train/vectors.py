"""V_theta in training: S_topk chosen without gradients, weights on the chosen dimensions with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sidr_rag.train.model import Encoded, TrainableEncoder
from sidr_rag.types import SparseVectors


@dataclass(frozen=True)
class ActiveVectors:
    """Vectors on their active dimensions, padded to one width.

    Attributes:
        dims: i64[n, k]; 0 at padding.
        theta: f32[n, k]; V_theta, 0 at padding.
        own: f32[n, k]; 1 where the dimension is one of the text's own tokens, else 0.
        real: bool[n, k]; false at padding.
    """

    dims: Tensor
    theta: Tensor
    own: Tensor
    real: Tensor

    def used_dims(self) -> Tensor:
        """The distinct active dimensions of all vectors, ascending: i64[u]."""
        used: Tensor = torch.unique(self.dims[self.real])
        return used

    def cut(self, k: int | None) -> Tensor:
        """V_theta on the k heaviest dimensions and the text's own, 0 on the rest: f32[n, width], differentiable.

        Args:
            k: None keeps every active dimension.
        """
        if k is None or k >= self.theta.shape[1]:
            return self.theta
        least = self.theta.detach().topk(k, dim=1).values[:, -1:]
        return self.theta * ((self.theta >= least) | (self.own > 0))

    def sparse(self, weights: Tensor, dim: int, most: int) -> SparseVectors:
        """Rows for the search: the given weights on the `most` heaviest dimensions and the text's own.

        Args:
            weights: f32[n, k], 0 at padding.
            dim: of the vocabulary space.
            most: how many dimensions may stay beside the own ones.
        """
        dims, values = self.dims.cpu().numpy(), weights.detach().float().cpu().numpy()
        own, real = self.own.cpu().numpy() > 0, self.real.cpu().numpy()
        rows = []
        for d, w, o, r in zip(dims, values, own, real, strict=True):
            keep = o.copy()
            keep[np.argsort(-w, kind="stable")[:most]] = True
            keep &= r & (w > 0)
            rows.append((d[keep], w[keep]))
        return SparseVectors.from_rows(rows, dim)


def active_vectors(
    encoder: TrainableEncoder, encoded: Encoded, own: Sequence[NDArray[np.int64]], k: int
) -> ActiveVectors:
    """V_theta of texts on their top k dimensions united with their own tokens; never with any other text's tokens.

    Args:
        encoder: of the texts' side.
        encoded: their hidden states.
        own: for each text, the dimensions of its own tokens, distinct.
        k: of S_topk, at least 1.
    """
    logits = encoder.pooled_logits(encoded)
    top = logits.topk(min(k, logits.shape[1]), dim=1).indices
    width = top.shape[1] + max((len(o) for o in own), default=0)
    dims = torch.zeros((len(own), width), dtype=torch.int64)
    flags = torch.zeros((len(own), width))
    real = torch.zeros((len(own), width), dtype=torch.bool)
    for i, (best, mine) in enumerate(zip(top.cpu().numpy(), own, strict=True)):
        row = np.union1d(best, mine)
        dims[i, : len(row)] = torch.from_numpy(row)
        flags[i, : len(row)] = torch.from_numpy(np.isin(row, mine).astype(np.float32))
        real[i, : len(row)] = True
    device = logits.device
    dims, flags, real = dims.to(device), flags.to(device), real.to(device)
    theta = encoder.weights_at_each(encoded, dims) * real
    return ActiveVectors(dims, theta, flags, real)


def kept_dims(
    encoder: TrainableEncoder, encoded: Encoded, own: Sequence[NDArray[np.int64]], dims: Tensor, k: int
) -> Tensor:
    """Which of some dimensions S_topk leaves active in each text, its own tokens always: f32[texts, len(dims)] of 0/1.

    Args:
        encoder: of the texts' side.
        encoded: their hidden states.
        own: for each text, the dimensions of its own tokens.
        dims: i64[u], ascending.
        k: of S_topk, at least 1.
    """
    logits = encoder.pooled_logits(encoded)
    least = logits.topk(min(k, logits.shape[1]), dim=1).values[:, -1:]
    kept = (logits[:, dims] >= least).float()
    places = dims.cpu().numpy()
    for i, mine in enumerate(own):
        kept[i, torch.from_numpy(np.flatnonzero(np.isin(places, mine)))] = 1.0
    return kept


def token_states(encoded: Encoded) -> list[NDArray[np.float32]]:
    """The last states of each text's tokens, f32[tokens, hidden], without the first and the last, which are special."""
    found = [
        (int(place), states if real is None else states[real])
        for pack in encoded
        for place, states, real in zip(
            pack.places.tolist(), pack.hidden, _rows(pack.real, len(pack.places)), strict=True
        )
    ]
    return [states[1:-1].detach().float().cpu().numpy() for _, states in sorted(found, key=lambda pair: pair[0])]


def _rows(mask: Tensor | None, n: int) -> Sequence[Tensor | None]:
    return [None] * n if mask is None else list(mask)
