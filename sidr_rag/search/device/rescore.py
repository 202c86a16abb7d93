"""Canonical scores of a batch's candidates from their forward lists, all at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.bot_index import BotIndex
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors


def canonical_scores(
    index: BotIndex,
    vectors: SparseVectors,
    weighting: Weighting,
    queries: NDArray[np.int64],
    views: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """The scoring contract for pairs of a query and a row: f32[n], the bits of every other kernel.

    Args:
        index: the state that is searched.
        vectors: w(t) of the queries.
        weighting: levels, gains and s(d).
        queries: i64[n]; row of `vectors`.
        views: i64[n]; segment of the index.
        rows: i64[n]; row of the segment.
    """
    sums = np.zeros(len(rows), dtype=np.float64)
    if not len(rows):
        return sums.astype(np.float32)
    owner = np.repeat(np.arange(len(vectors)), np.diff(vectors.indptr))
    table = np.zeros((len(vectors), vectors.dim), dtype=np.float64)
    for i, level in enumerate(index.views[0].segment.levels):
        if level.threshold not in weighting.levels:
            continue
        gain = weighting.gains[weighting.levels.index(level.threshold)]
        table[owner, vectors.dims] = gain * vectors.weights.astype(np.float64)
        levels = [view.segment.levels[i] for view in index.views]
        lists = [levels[v].dims_of(r) for v, r in zip(views.tolist(), rows.tolist(), strict=True)]
        lens = np.array([len(dims) for dims in lists])
        pair = np.repeat(np.arange(len(lists)), lens)
        place = np.arange(len(pair)) - np.repeat(np.cumsum(lens) - lens, lens)
        terms = np.zeros((len(lists), 1 + int(lens.max())), dtype=np.float64)
        terms[:, 0] = sums
        terms[pair, 1 + place] = table[queries[pair], np.concatenate(lists)]
        sums = np.add.accumulate(terms, axis=1)[:, -1]  # one after the other, as the contract wants it
    factors = np.ones(len(rows), dtype=np.float64)
    for v in np.unique(views).tolist():
        found = index.length_factors(index.views[v], weighting.length_exponent, weighting.length_slope)
        if found is not None:
            factors[views == v] = found[rows[views == v]]
    return (sums * factors).astype(np.float32)
