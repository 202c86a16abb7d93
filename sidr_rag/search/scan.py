"""One segment, or some blocks of it, against one query or a batch: by the kernel that is likely to be the quickest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.bot_index import LengthFactors
from sidr_rag.index.postings import BLOCK_ROWS
from sidr_rag.index.segment import Segment
from sidr_rag.search.bounds import BATCH, Query, integer_weights, scale_of
from sidr_rag.search.cpu import NumbaKernel
from sidr_rag.search.kernels import SearchKernel

SeqHits = tuple[NDArray[np.uint64], NDArray[np.float32]]

_NO_BITS = np.empty(0, np.uint32)
_NO_STEPS = np.empty(0, np.uint16)
# More rows than these to score again, and plain accumulation is no slower.
_MOST_CANDIDATES = 4_096
_ROW_COST = 40  # rows that a scan goes over while one is scored from its forward list


@dataclass(frozen=True)
class Part:
    """A segment with what one search needs of it.

    Attributes:
        segment: the lists.
        mask: bool[n_rows] of the rows that may be found, or None for all.
        bits: the same as bits, or None.
        lengths: the rows' factors, or None for ones.
    """

    segment: Segment
    mask: NDArray[np.bool_] | None
    bits: NDArray[np.uint32] | None
    lengths: LengthFactors | None

    @property
    def factors(self) -> NDArray[np.float64] | None:
        """s(d), f64[n_rows], or None for ones."""
        return None if self.lengths is None else self.lengths.factors

    def rescored(self, kernel: NumbaKernel, query: Query, rows: NDArray[np.int64]) -> SeqHits:
        """Those of some rows, i64 ascending (overwritten), that match, with their canonical scores."""
        factors = None if self.lengths is None else self.lengths.of(rows)
        return self.hits(*kernel.rescore(self.segment, query, rows, factors))

    @property
    def steps(self) -> NDArray[np.uint16]:
        """The factors as integers; empty for none."""
        return _NO_STEPS if self.lengths is None else self.lengths.steps

    @cached_property
    def n_allowed(self) -> int:
        """How many rows may be found."""
        return self.segment.n_rows if self.mask is None else int(np.count_nonzero(self.mask))

    def scale(self, query: Query) -> float:
        """The scale of a query's integer weights here; 0 for none."""
        return scale_of(query, self.segment.longest, 1.0 if self.lengths is None else self.lengths.top)

    def hits(self, rows: NDArray[np.int64], values: NDArray[np.float32]) -> SeqHits:
        """Scored rows as seqs."""
        return self.segment.seqs[rows], values


@dataclass(frozen=True)
class Group:
    """Queries that are searched together.

    Attributes:
        members: their places among all queries.
        queries: the queries, `BATCH` at most.
        scales: of their integer weights; empty where they are searched one by one.
        n_keys: levels times dimensions of the index.
    """

    members: tuple[int, ...]
    queries: tuple[Query, ...]
    scales: tuple[float, ...] = ()
    n_keys: int = 0

    @cached_property
    def table(self) -> NDArray[np.uint16]:
        """u16[n_keys + 1, BATCH]: the integer weights of a batch, and a row of zeros."""
        table = np.zeros((self.n_keys + 1, BATCH), np.uint16)
        n_levels = len(self.queries[0].gains)
        for q, (query, scale) in enumerate(zip(self.queries, self.scales, strict=True)):
            for level in range(n_levels):
                if query.gains[level]:
                    table[self.n_keys // n_levels * level + query.dims, q] = integer_weights(query, level, scale)
        return table

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """i64[BATCH]: how many dimensions each query has."""
        return np.array([len(query.dims) for query in self.queries] + [0] * (BATCH - len(self.queries)))


def search_part(kernel: SearchKernel, group: Group, part: Part, blocks: tuple[int, int], k: int) -> list[SeqHits]:
    """For each query of a group, rows of some blocks among which the k best are, with their scores.

    Args:
        kernel: NumPy's or the compiled one.
        group: the queries.
        part: the segment.
        blocks: the first block and the one after the last.
        k: at least 1.
    """
    if not isinstance(kernel, NumbaKernel):
        return [_plainly(kernel, query, part, blocks, k) for query in group.queries]
    if not group.scales:
        return [_alone(kernel, query, part, blocks, k) for query in group.queries]
    rows = (blocks[0] * BLOCK_ROWS, min(part.segment.n_rows, blocks[1] * BLOCK_ROWS))
    limit = min(_MOST_CANDIDATES, 16 * k + 1_024)
    bits = _NO_BITS if part.bits is None else part.bits
    found = kernel.scan_batch(
        part.segment, group.table, group.queries[0].gains, group.sizes, k, bits, part.steps, rows, limit
    )
    return [
        _alone(kernel, query, part, blocks, k) if candidates is None else part.rescored(kernel, query, candidates)
        for query, candidates in zip(group.queries, found, strict=False)
    ]


def _alone(kernel: NumbaKernel, query: Query, part: Part, blocks: tuple[int, int], k: int) -> SeqHits:
    """One query by the quickest way: the rows allowed, if few; a scan by integers; else plain accumulation."""
    first, last = blocks[0] * BLOCK_ROWS, min(part.segment.n_rows, blocks[1] * BLOCK_ROWS)
    if not kernel.has("scan", "rescore"):
        return _plainly(kernel, query, part, blocks, k)
    if part.mask is not None and part.n_allowed * _ROW_COST < part.segment.n_rows:
        rows = np.flatnonzero(part.mask[first:last]) + first
        return part.rescored(kernel, query, rows)
    scale = part.scale(query) if k <= _MOST_CANDIDATES // 4 else 0.0
    if scale:
        bits = _NO_BITS if part.bits is None else part.bits
        found = kernel.scan(part.segment, query, scale, k, bits, part.steps, blocks, _MOST_CANDIDATES)
        if found is not None:
            return part.rescored(kernel, query, found)
    return _plainly(kernel, query, part, blocks, k)


def _plainly(kernel: SearchKernel, query: Query, part: Part, blocks: tuple[int, int], k: int) -> SeqHits:
    first, last = blocks[0] * BLOCK_ROWS, min(part.segment.n_rows, blocks[1] * BLOCK_ROWS)
    scores = np.zeros(last - first, np.float64)
    kernel.score(part.segment, query, scores, blocks[0])
    factors = None if part.factors is None else part.factors[first:last]
    rows, values = kernel.select(scores, factors, None if part.mask is None else part.mask[first:last], k)
    return part.hits(rows + first, values)
