"""Single stages of retrieval, timed by the appendix's protocol: ten runs, the fastest and the slowest left out."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpora import Corpus
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.index.embedding_index import EmbeddingIndex
from sidr_rag.types import TokenCounts

WIKIPEDIA = 21_015_324  # passages of DPR's psgs_w100.tsv
NQ_QUESTIONS = 3_610
BATCH = 32
K = 100
RUNS = 10


def trimmed(call: Callable[[], object], runs: int = RUNS) -> float:
    """Mean CPU seconds of a call, all threads of the process, without the fastest and the slowest run."""
    call()  # compiles, and fills what is made on first use
    gc.collect()
    times = []
    for _ in range(runs):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    kept = sorted(times)[1:-1] if runs > 2 else times
    return float(np.mean(kept))


def bot_index(corpus: Corpus) -> BotIndex:
    """The binary index of a prepared corpus, one level."""
    n = len(corpus)
    sizes = np.diff(corpus.indptr).astype(np.uint32)
    dims = np.asarray(corpus.dims)
    counts = TokenCounts(corpus.indptr, dims, np.ones(len(dims), np.uint32), sizes, corpus.dim)
    segment = build_segment(counts, np.arange(1, n + 1, dtype=np.uint64), (1,))
    return BotIndex.of(corpus.dim, [SegmentView("passages", segment)])


def drawn_index(n: int, dim: int, active: int, seed: int = 5) -> BotIndex:
    """A binary index of n rows with `active` of `dim` dimensions each, drawn at random without repetition."""
    random = np.random.default_rng(seed)
    rows = np.sort(np.argsort(random.random((n, dim), dtype=np.float32), axis=1)[:, :active], axis=1)
    indptr = np.arange(n + 1, dtype=np.int64) * active
    dims = rows.reshape(-1).astype(np.uint16)
    lengths = np.full(n, active, np.uint32)
    counts = TokenCounts(indptr, dims, np.ones(len(dims), np.uint32), lengths, dim)
    segment = build_segment(counts, np.arange(1, n + 1, dtype=np.uint64), (1,))
    return BotIndex.of(dim, [SegmentView("drawn", segment)])


def embedding_index(corpus: Corpus, n: int, active: int, seed: int = 5) -> EmbeddingIndex:
    """Weighted postings as full search has: each passage's own tokens, filled up to `active` dimensions at random."""
    random = np.random.default_rng(seed)

    def row(i: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        own = np.asarray(corpus.dims[corpus.indptr[i] : corpus.indptr[i + 1]], dtype=np.int32)
        more = random.integers(0, corpus.dim, size=max(0, active - len(own)), dtype=np.int32)
        dims = np.unique(np.concatenate([own, more])).astype(np.int32)
        return dims, random.random(len(dims), dtype=np.float32)

    return EmbeddingIndex.build(0, corpus.dim, ((i, row(i)) for i in range(n)))


def dense_search(vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The k best rows of every query, best first: one product, then a partial sort."""
    scores = queries @ vectors.T
    k = min(k, len(vectors))
    best = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k :]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1)


def shown_seconds(seconds: float) -> str:
    """Seconds, minutes or hours, in the unit that reads best."""
    for unit, size in (("h", 3600.0), ("m", 60.0), ("s", 1.0)):
        if seconds >= 2 * size or (unit == "h" and seconds >= 0.1 * size):
            return f"{seconds / size:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"


def cycled(items: Sequence[str], n: int) -> list[str]:
    """So many of the items, from the start again where they are fewer."""
    return [items[i % len(items)] for i in range(n)]
