"""Vocabulary projection fused with the max-pool: no [tokens, dimensions] tensor is ever held whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Elements of a block of logits: a few megabytes, so that the maximum is taken while the block is in the caches.
_BLOCK = 1 << 22


def max_logits(hidden: Tensor, rows: Tensor) -> Tensor:
    """The largest logit of each text's tokens, for each dimension: f32[texts, n], differentiable in both.

    Only the token that has the maximum passes a gradient on; among equal ones, the first.

    Args:
        hidden: [texts, tokens, width], of the compute type; padding must repeat a real token.
        rows: [n, width], of the same type: the word embeddings of the dimensions.
    """
    pooled: Tensor = _MaxLogits.apply(hidden, rows)  # type: ignore[no-untyped-call]
    return pooled


class _MaxLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rows: Tensor) -> Tensor:
        texts, tokens, _ = hidden.shape
        pooled = torch.empty((texts, len(rows)), dtype=torch.float32, device=hidden.device)
        winners = torch.empty((texts, len(rows)), dtype=torch.int64, device=hidden.device)
        for start, end in _blocks(texts * tokens, len(rows)):
            values, at = (hidden @ rows[start:end].t()).max(dim=1)
            pooled[:, start:end], winners[:, start:end] = values, at
        ctx.save_for_backward(hidden, rows, winners)
        return pooled

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        hidden, rows, winners = ctx.saved_tensors
        texts, tokens, width = hidden.shape
        to_hidden = torch.zeros((texts * tokens, width), dtype=torch.float32, device=hidden.device)
        to_rows = torch.empty_like(rows)
        flat = hidden.reshape(-1, width)
        narrow = gradient.to(hidden.dtype)
        for start, end in _blocks(texts * tokens, len(rows)):
            spread = torch.zeros((texts, tokens, end - start), dtype=hidden.dtype, device=hidden.device)
            spread.scatter_(1, winners[:, None, start:end], narrow[:, None, start:end])
            spread = spread.view(-1, end - start)
            to_hidden += spread @ rows[start:end]
            to_rows[start:end] = spread.t() @ flat
        return to_hidden.view(texts, tokens, width).to(hidden.dtype), to_rows


def _blocks(tokens: int, dims: int) -> list[tuple[int, int]]:
    width = max(128, _BLOCK // max(1, tokens))
    return [(start, min(dims, start + width)) for start in range(0, dims, width)]
