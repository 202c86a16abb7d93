"""Rows that may belong to the best of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidr_rag.search.device.bounds import Bound


@dataclass(frozen=True)
class Candidates:
    """Pairs of a query and a row.

    Attributes:
        queries: i64[n].
        views: i64[n]; position of the row's segment in the index.
        rows: i64[n]; row in that segment.
        sums: f32[n]; approximate scores, scaled.
    """

    queries: NDArray[np.int64]
    views: NDArray[np.int64]
    rows: NDArray[np.int64]
    sums: NDArray[np.float32]

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """All pairs of all parts."""
        none = np.empty(0, dtype=np.int64)
        parts = [cls(none, none, none, np.empty(0, dtype=np.float32)), *parts]
        return cls(
            np.concatenate([part.queries for part in parts]),
            np.concatenate([part.views for part in parts]),
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.sums for part in parts]),
        )

    def without(self, queries: NDArray[np.bool_]) -> Candidates:
        """Those of the other queries.

        Args:
            queries: bool[number of queries].
        """
        keep = ~queries[self.queries]
        return Candidates(self.queries[keep], self.views[keep], self.rows[keep], self.sums[keep])

    def best(self, k: int, n_queries: int, bound: Bound) -> Candidates:
        """Those that can be among their query's k best, by the sums of all."""
        keep = np.ones(len(self.queries), dtype=np.bool_)
        for query in range(n_queries):
            mine = np.flatnonzero(self.queries == query)
            if len(mine) > k:
                reached = float(np.partition(self.sums[mine], len(mine) - k)[len(mine) - k])
                keep[mine] = self.sums[mine] >= bound.least(reached)
        return Candidates(self.queries[keep], self.views[keep], self.rows[keep], self.sums[keep])
