"""One pass of a batch of query vectors over every segment of an index state."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.postings import packed
from sidr_rag.search.bounds import Query
from sidr_rag.search.kernels import kernel_for
from sidr_rag.search.plan import Task, groups_of, tasks_of
from sidr_rag.search.scan import Part, search_part
from sidr_rag.search.scan import SeqHits as SeqHits
from sidr_rag.search.topk import merge_hits
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors

T = TypeVar("T")
R = TypeVar("R")
KernelChoice = Literal["auto", "numpy", "numba"]


class SearchPool:
    """Threads for kernels, which release the interpreter lock; made on first use and again after a fork."""

    def __init__(self, num_threads: int | None = None) -> None:
        self.num_threads = num_threads or min(8, os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def map(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """`call` of every item, in order; alone in this thread where there is nothing to spread."""
        if self.num_threads == 1 or len(items) < 2:
            return [call(item) for item in items]
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="sidr-search")
                self._pid = os.getpid()
            pool = self._pool
        return list(pool.map(call, items))

    def close(self) -> None:
        """End the threads; a later call makes new ones."""
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.shutdown(wait=False)
            self._pool = None


def check_weights(vectors: SparseVectors, dim: int) -> None:
    """Refuse query vectors that have no meaning as weights.

    Raises:
        InvalidInputError: for a foreign dimension count, NaN, infinity or a negative weight.
    """
    if vectors.dim != dim:
        raise InvalidInputError(f"vectors.dim={vectors.dim} does not fit the index, which has {dim} dimensions")
    vectors.validate()
    if not np.isfinite(vectors.weights).all():
        raise InvalidInputError("vectors.weights must be finite; found NaN or infinity")
    if (vectors.weights < 0).any():
        raise InvalidInputError("vectors.weights must not be negative; drop or shift the negative ones")


def check_dims(vectors: SparseVectors, index: BotIndex) -> None:
    """Refuse dimensions that the index does not have.

    Raises:
        InvalidInputError: if there is one.
    """
    if len(vectors.dims) and not (vectors.dims.min() >= 0 and vectors.dims.max() < index.dim):
        raise InvalidInputError(f"vectors.dims must lie in 0..{index.dim - 1}, the dimensions of the index")


def search_index(
    index: BotIndex,
    vectors: SparseVectors,
    weighting: Weighting,
    k: int,
    *,
    allowed: Callable[[SegmentView], NDArray[np.bool_] | None] | None = None,
    pool: SearchPool | None = None,
    kernel: KernelChoice = "auto",
) -> list[SeqHits]:
    """Exact beta search: the k best live passages of each query that share a dimension with it.

    Args:
        index: the state to search.
        vectors: w(t) of the queries, finite and non-negative.
        weighting: levels, gains and the length factor.
        k: at least 0.
        allowed: for a segment, bool[n_rows] of the rows that may be found, or None for all.
        pool: threads to spread queries, or the segments of one query, over.
        kernel: "auto" chooses by size; the result has the same bits with any.

    Returns:
        For each query: seqs u64[<=k] and scores f32[<=k], score descending, then seq ascending.

    Raises:
        InvalidInputError: if a dimension is outside the index.
    """
    check_dims(vectors, index)
    parts = _parts(index, weighting, allowed) if k else []
    queries = _queries(vectors, weighting, index) if parts else {}
    chosen = kernel_for(sum(view.segment.n_rows for view in index.views), prefer=kernel)
    groups = groups_of(chosen, queries, parts, index.df, k)
    tasks = tasks_of(groups, parts, 1 if pool is None else pool.num_threads)

    def run(task: Task) -> list[SeqHits]:
        return search_part(chosen, task.group, task.part, task.blocks, k)

    found: list[list[SeqHits]] = [[] for _ in range(len(vectors))]
    for task, hits in zip(tasks, map(run, tasks) if pool is None else pool.map(run, tasks), strict=True):
        for i, part_hits in zip(task.group.members, hits, strict=True):
            found[i].append(part_hits)
    return [merge_hits(hits, k) for hits in found]


def _parts(
    index: BotIndex, weighting: Weighting, allowed: Callable[[SegmentView], NDArray[np.bool_] | None] | None
) -> list[Part]:
    parts = []
    for view in index.views:
        chosen = None if allowed is None else allowed(view)
        mask = view.live if chosen is None else chosen if view.live is None else view.live & chosen
        if mask is None or mask.any():
            bits = view.live_bits if chosen is None else packed(mask) if mask is not None else None
            lengths = index.length_table(view, weighting.length_exponent, weighting.length_slope)
            parts.append(Part(view.segment, mask, bits, lengths))
    return parts


def _queries(vectors: SparseVectors, weighting: Weighting, index: BotIndex) -> dict[int, Query]:
    """The queries that have anything to find, by their place."""
    given = dict(zip(weighting.levels, weighting.gains, strict=True))
    gains = np.array([given.get(t, 0.0) for t in index.views[0].segment.thresholds])
    positive = bool(len(vectors.weights)) and vectors.weights.min() > 0
    queries = {}
    for i in range(len(vectors)):
        dims, weights = vectors.row(i)
        if not positive:
            keep = weights > 0
            dims, weights = dims[keep], weights[keep]
        if len(dims):
            queries[i] = Query(np.ascontiguousarray(dims, np.int32), weights.astype(np.float64), gains)
    return queries


def pairwise_scores(
    query: tuple[NDArray[np.int32], NDArray[np.float32]], passages: Sequence[tuple[NDArray[Any], NDArray[Any]]]
) -> NDArray[np.float32]:
    """<query, passage> for each sparse passage: float32 of a float64 sum in ascending dimension order, f32[n]."""
    dims, weights = query
    scores = np.zeros(len(passages), dtype=np.float32)
    for i, (passage_dims, passage_weights) in enumerate(passages):
        if len(passage_dims) and len(dims):
            at = np.searchsorted(passage_dims, dims)
            at[at == len(passage_dims)] = 0
            found = passage_dims[at] == dims
            products = weights[found].astype(np.float64) * passage_weights[at[found]].astype(np.float64)
            # cumsum adds in order; np.sum adds pairwise and would give other bits than a kernel.
            scores[i] = products.cumsum()[-1] if len(products) else 0.0
    return scores
