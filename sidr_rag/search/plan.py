"""What a search is cut into: which queries go together, and which blocks of a segment go to which thread.

None of it changes a bit of the result. The constants are nanoseconds of one core, measured on passages of 100 words
(`python -m benchmarks.kernels`); only their ratios matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidr_rag.search.bounds import BATCH, Query
from sidr_rag.search.cpu import NumbaKernel
from sidr_rag.search.kernels import SearchKernel
from sidr_rag.search.scan import Group, Part

_POSTING = 1.3
_BITMAP_ROW = 0.02  # one bitmap, one row
_SCANNED_ROW = 0.25
_QUERY = 15_000.0
_FORWARD_ENTRY = 0.8  # for 32 queries at once
_FORWARD_TABLE = 1_500_000.0
_MOST_HITS = 256  # of a batch: more, and its 32 heaps leave the cache


@dataclass(frozen=True)
class Task:
    """What one thread does without a pause: a group of queries against some blocks of a segment."""

    group: Group
    part: Part
    blocks: tuple[int, int]


def groups_of(
    kernel: SearchKernel, queries: Mapping[int, Query], parts: Sequence[Part], df: NDArray[np.int64], k: int
) -> list[Group]:
    """Batches of the queries that cost more by themselves than their share of a scan of all forward lists.

    Args:
        kernel: only the compiled one has batches.
        queries: by their place.
        parts: what is searched.
        df: i64[dim]: in how many passages of the index each dimension is.
        k: how many hits are wanted.
    """
    batched: list[Group] = []
    narrow = all(part.segment.doc_dims.dtype == np.uint16 for part in parts)
    if (
        isinstance(kernel, NumbaKernel)
        and kernel.has("scan_batch", "rescore")
        and narrow
        and len(queries) > 1
        and k <= _MOST_HITS
    ):
        n_rows = sum(part.segment.n_rows for part in parts)
        forward = _FORWARD_TABLE + _FORWARD_ENTRY * sum(len(part.segment.doc_dims) for part in parts)
        heavy = []
        for i, query in queries.items():
            cost = _QUERY + n_rows * _SCANNED_ROW
            cost += float(np.minimum(df[query.dims] * _POSTING, n_rows * _BITMAP_ROW).sum())
            scale = min(part.scale(query) for part in parts) if cost * BATCH > forward else 0.0
            if scale:
                heavy.append((i, query, scale, cost))
        for first in range(0, len(heavy), BATCH):
            members, together, scales, costs = zip(*heavy[first : first + BATCH], strict=True)
            if sum(costs) > forward:
                batched.append(Group(members, together, scales, parts[0].segment.postings.n_keys))
    done = {i for group in batched for i in group.members}
    return batched + [Group((i,), (query,)) for i, query in queries.items() if i not in done]


def tasks_of(groups: Sequence[Group], parts: Sequence[Part], num_threads: int) -> list[Task]:
    """Every group with every segment, segments cut where there would be fewer tasks than threads."""
    tasks = []
    for part in parts:
        n_blocks = part.segment.postings.n_blocks
        pieces = max(1, min(n_blocks, num_threads // max(1, len(groups) * len(parts))))
        edges = [n_blocks * i // pieces for i in range(pieces + 1)]
        tasks += [Task(group, part, blocks) for blocks in itertools.pairwise(edges) for group in groups]
    return tasks
