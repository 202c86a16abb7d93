"""Results that differ from each other: maximal marginal relevance over bags of tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.inputs import as_count
from sidr_rag.types import SparseVectors


def maximal_marginal_relevance(
    relevance: NDArray[np.floating], bags: SparseVectors, k: int, relevance_weight: float = 0.5
) -> list[int]:
    """Positions of k candidates, each the best trade of relevance against likeness to those before it.

    Chosen next is the candidate with the greatest `v * relevance - (1 - v) * max likeness` (Carbonell and Goldstein
    1998, where v is lambda). The likeness of two bags is the cosine of binary vectors, `|a & b| / sqrt(|a| |b|)`, 0
    where one is empty; so a relevance should lie in 0..1 as well. Ties go to the candidate that comes first.

    Args:
        relevance: [n], finite.
        bags: n rows; their weights play no part.
        k: how many; at most n are given.
        relevance_weight: v, from 0 (unlikeness alone) to 1 (relevance alone).

    Raises:
        InvalidInputError, InvalidTypeError: if k or the weight cannot be used, or the candidates do not fit the bags.
    """
    wanted = as_count("k", k)
    if isinstance(relevance_weight, bool) or not isinstance(relevance_weight, (int, float)):
        raise InvalidTypeError(f"relevance_weight={relevance_weight!r} is a {type(relevance_weight).__name__}")
    if not 0 <= relevance_weight <= 1:
        raise InvalidInputError(f"relevance_weight={relevance_weight!r} must lie in 0..1")
    gains = np.asarray(relevance, dtype=np.float64)
    if gains.shape != (len(bags),) or not np.isfinite(gains).all():
        raise InvalidInputError(f"relevance of shape {gains.shape} must hold {len(bags)} finite numbers, one per bag")
    sizes = np.diff(bags.indptr).astype(np.float64)
    row_of_entry = np.repeat(np.arange(len(bags)), np.diff(bags.indptr))
    likest = np.zeros(len(bags))  # to any of those chosen so far
    open_ = np.ones(len(bags), dtype=np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(wanted, len(bags)):
        value = relevance_weight * gains - (1.0 - relevance_weight) * likest
        best = int(np.argmax(np.where(open_, value, -np.inf)))
        chosen.append(best)
        open_[best] = False
        marked = np.zeros(bags.dim)
        marked[bags.row(best)[0]] = 1.0
        shared = np.bincount(row_of_entry, weights=marked[bags.dims], minlength=len(bags))
        norms = np.sqrt(sizes * sizes[best])
        likest = np.maximum(likest, np.divide(shared, norms, out=np.zeros(len(bags)), where=norms > 0))
    return chosen
