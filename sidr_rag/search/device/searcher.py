"""Exact beta search of a batch of queries on one or several torch devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.search.device.bounds import Bound
from sidr_rag.search.device.candidates import Candidates
from sidr_rag.search.device.rescore import canonical_scores
from sidr_rag.search.device.scorer import Scorer, on, scorer_for
from sidr_rag.search.device.shard import DeviceShard, Rules
from sidr_rag.search.device.tables import Tables
from sidr_rag.search.searcher import SearchPool, SeqHits, check_dims, search_index
from sidr_rag.search.topk import merge_hits
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors

_COLUMNS = 64  # queries scored together: more would not fit a core's registers
_MOST_CANDIDATES = 50_000
_FREE_SHARE = 0.8

Allowed = Callable[[SegmentView], NDArray[np.bool_] | None]


class DeviceSearcher:
    """Holds an index on devices and searches it; the results have the bits of `search_index`.

    Safe to use from many threads, which take turns.

    Args:
        devices: torch devices, as "cuda" or ["cuda:0", "cuda:1"]; several share the index by ranges of passages.
        memory: bytes of the index that may stay on each device, the rest is streamed from main memory; None: most of
            what is free there.
        scorer: None chooses.
        pool: threads of the processor, which searches where too many passages score alike.
    """

    def __init__(
        self,
        devices: str | Sequence[str],
        *,
        memory: int | None = None,
        scorer: Scorer | None = None,
        pool: SearchPool | None = None,
    ) -> None:
        names = [devices] if isinstance(devices, str) else list(devices)
        self._scorer = scorer or scorer_for(torch.device(names[0]))
        self._shards = [_shard(_numbered(name), memory, self._scorer) for name in names]
        self._processor = pool
        self._held: tuple[str, ...] | None = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(len(names), thread_name_prefix="sidr-device") if len(names) > 1 else None

    @property
    def nbytes(self) -> int:
        """Bytes of the index on all devices."""
        return sum(shard.nbytes for shard in self._shards)

    def search(
        self,
        index: BotIndex,
        vectors: SparseVectors,
        weighting: Weighting,
        k: int,
        *,
        allowed: Allowed | None = None,
    ) -> list[SeqHits]:
        """See `search_index`, whose arguments and results these are."""
        check_dims(vectors, index)
        n = len(vectors)
        if not k or not index.views or not (vectors.weights > 0).any():
            return [(np.empty(0, np.uint64), np.empty(0, np.float32)) for _ in range(n)]
        if not np.isfinite(vectors.weights).all():
            return search_index(index, vectors, weighting, k, allowed=allowed, pool=self._processor)
        masks = [_mask(view, allowed) for view in index.views]
        hits: list[SeqHits] = []
        with self._lock:
            self._hold(index)
            for first in range(0, n, _COLUMNS):
                rows = [_positive(*vectors.row(i)) for i in range(first, min(n, first + _COLUMNS))]
                batch = SparseVectors.from_rows(rows, index.dim)
                hits += self._batch(index, batch, weighting, k, masks, allowed)
        return hits

    def close(self) -> None:
        """Let go of the devices' memory and the threads; a later search takes them again."""
        with self._lock:
            self._held = None
            for shard in self._shards:
                shard.hold(())
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = ThreadPoolExecutor(len(self._shards), thread_name_prefix="sidr-device")

    def _hold(self, index: BotIndex) -> None:
        names = tuple(view.name for view in index.views)
        if names == self._held:
            return
        self._held = None  # a failure below leaves shards that must be filled again
        rows = np.cumsum([0, *(view.segment.n_rows for view in index.views)])
        cuts = [int(np.searchsorted(rows, rows[-1] * i / len(self._shards))) for i in range(len(self._shards) + 1)]
        for shard, first, last in zip(self._shards, cuts[:-1], cuts[1:], strict=True):
            shard.hold(index.views[first:last])
        self._held = names

    def _batch(
        self,
        index: BotIndex,
        vectors: SparseVectors,
        weighting: Weighting,
        k: int,
        masks: list[NDArray[np.bool_] | None],
        allowed: Allowed | None,
    ) -> list[SeqHits]:
        average = index.total_length / max(index.n_live, 1)
        exponent = weighting.length_exponent if index.total_length else 0.0
        shortest = 1.0 - weighting.length_slope + weighting.length_slope / max(average, 1e-9)
        largest = max(1.0, shortest**-exponent) if exponent else 1.0
        rules = Rules(k, _MOST_CANDIDATES, exponent, weighting.length_slope, average, largest)
        positions = {view.name: i for i, view in enumerate(index.views)}
        columns = self._scorer.columns(len(vectors))

        def of_shard(shard: DeviceShard) -> tuple[Candidates, NDArray[np.bool_]]:
            with on(shard.device):
                tables = Tables.of(vectors, weighting, columns, self._scorer.table_type, shard.device)
                return shard.candidates(tables, rules, positions, masks, keep_masks=allowed is None)

        found = list(self._pool.map(of_shard, self._shards)) if self._pool else [of_shard(self._shards[0])]
        given_up = np.logical_or.reduce([lost for _, lost in found])
        terms = int(np.diff(vectors.indptr).max()) * len(weighting.levels)
        bound = Bound.of(self._scorer.table_type, terms, largest)
        merged = Candidates.joined([own for own, _ in found]).without(given_up).best(k, len(vectors), bound)
        scores = canonical_scores(index, vectors, weighting, merged.queries, merged.views, merged.rows)
        hits = []
        for query in range(len(vectors)):
            mine = merged.queries == query
            seqs = [index.views[v].segment.seqs[r] for v, r in zip(merged.views[mine], merged.rows[mine], strict=True)]
            hits.append(merge_hits([(np.array(seqs, dtype=np.uint64), scores[mine])], k))
        # So many passages score alike for these that exact arithmetic on the processor is the shorter way.
        for query in np.flatnonzero(given_up).tolist():
            alone = SparseVectors.from_rows([vectors.row(query)], vectors.dim)
            [hits[query]] = search_index(index, alone, weighting, k, allowed=allowed, pool=self._processor)
        return hits


def _mask(view: SegmentView, allowed: Allowed | None) -> NDArray[np.bool_] | None:
    chosen = None if allowed is None else allowed(view)
    if chosen is None or view.live is None:
        return view.live if chosen is None else chosen
    return view.live & chosen


def _positive(dims: NDArray[np.int32], weights: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    return dims[weights > 0], weights[weights > 0]


def _numbered(name: str) -> torch.device:
    """The device as tensors name it: "cuda" alone is the current one."""
    device = torch.device(name)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _shard(device: torch.device, memory: int | None, scorer: Scorer) -> DeviceShard:
    if memory is None:
        memory = int(torch.cuda.mem_get_info(device)[0] * _FREE_SHARE) if device.type == "cuda" else 1 << 62
    return DeviceShard(device, scorer, memory)
