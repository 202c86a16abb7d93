"""The hits of several segments as one list, by the library's one rule of order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError

_NO_SEQS, _NO_SCORES = np.empty(0, np.uint64), np.empty(0, np.float32)


def merge_hits(
    parts: Sequence[tuple[NDArray[np.uint64], NDArray[np.float32]]], k: int
) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """The best k of every part's hits: score descending, then seq ascending.

    Exact if each part holds its own best k by the same order.

    Args:
        parts: per segment, seqs u64[<= k] and scores f32[<= k], in any order.
        k: how many; at least 0.

    Returns:
        seqs u64[<= k] and scores f32[<= k], best first.

    Raises:
        InvalidInputError: if k is negative or a part's two arrays differ in length.
    """
    if k < 0:
        raise InvalidInputError(f"k must be at least 0, got {k}")
    for i, (part_seqs, part_scores) in enumerate(parts):
        if len(part_seqs) != len(part_scores):
            raise InvalidInputError(
                f"parts[{i}] has {len(part_seqs)} seqs but {len(part_scores)} scores; they must be equally many"
            )
    if len(parts) == 1:
        seqs, scores = parts[0]
    else:
        # The empty pair fixes the dtypes: seqs above 2**53 would not survive a detour through float64.
        seqs = np.concatenate([_NO_SEQS, *(part[0] for part in parts)], dtype=np.uint64, casting="unsafe")
        scores = np.concatenate([_NO_SCORES, *(part[1] for part in parts)], dtype=np.float32)
    order = np.lexsort((seqs, -scores))[:k]
    return seqs[order], scores[order]
