"""Canonical scores of a few rows from their forward lists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.segment import Segment
from sidr_rag.search.weighting import Weighting


def canonical_scores(
    segment: Segment,
    rows: NDArray[np.int64],
    query: tuple[NDArray[np.int32], NDArray[np.float32]],
    weighting: Weighting,
    factors: NDArray[np.float64] | None,
) -> NDArray[np.float32]:
    """The scoring contract for rows of one segment: f32[len(rows)], the bits of every other kernel.

    Args:
        segment: where the rows are.
        rows: positions in the segment.
        query: dims ascending and w(t).
        weighting: levels and gains.
        factors: s(d) of all rows, or None.
    """
    dims, weights = query
    table = np.zeros(segment.dim, dtype=np.float64)
    sums = np.zeros(len(rows), dtype=np.float64)
    for level in segment.levels:
        if level.threshold not in weighting.levels:
            continue
        table[dims] = weighting.gains[weighting.levels.index(level.threshold)] * weights.astype(np.float64)
        starts = level.doc_indptr[rows]
        lens = level.doc_indptr[rows + 1] - starts
        for p in range(int(lens.max(initial=0))):  # one addition per row and step: the order that the contract wants
            here = np.flatnonzero(p < lens)
            sums[here] += table[level.doc_dims[starts[here] + p]]
    return (sums if factors is None else sums * factors[rows]).astype(np.float32)
