"""The compiled kernel serves before all of it is compiled, with the same bits."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.search.cpu import NumbaKernel
from sidr_rag.search.kernels import KernelLoader
from sidr_rag.search.reference import NumpyKernel
from sidr_rag.search.searcher import search_index
from sidr_rag.search.weighting import BINARY, Weighting
from sidr_rag.types import SparseVectors, TokenCounts

DIM = 300
LEVELLED = Weighting((1, 2), (1.0, 0.3), length_exponent=0.5, length_slope=0.4)


@pytest.fixture(scope="module")
def first_stage():
    return NumbaKernel(complete=False)


@pytest.fixture(scope="module")
def index():
    rng = np.random.default_rng(5)
    rows = [np.sort(rng.choice(DIM, rng.integers(0, 40), replace=False)) for _ in range(3_000)]
    dims = np.concatenate(rows).astype(np.uint16)
    counts = rng.integers(1, 4, len(dims)).astype(np.uint32)
    indptr = np.cumsum([0, *map(len, rows)])
    lengths = np.add.reduceat(np.append(counts, 0), indptr[:-1]) * (np.diff(indptr) > 0)
    given = TokenCounts(indptr.astype(np.int64), dims, counts, lengths.astype(np.uint32), DIM)
    segment = build_segment(given, np.arange(1, 3_001, dtype=np.uint64), (1, 2))
    live = rng.random(3_000) < 0.9
    return BotIndex.of(DIM, [SegmentView("a", segment, live)])


def vectors_of(seed, n):
    rng = np.random.default_rng(seed)
    rows = [(np.sort(rng.choice(DIM, 30, replace=False)), rng.random(30).astype(np.float32) + 0.01) for _ in range(n)]
    return SparseVectors.from_rows(rows, DIM)


@pytest.mark.parametrize("weighting", [BINARY, LEVELLED], ids=["binary", "levelled"])
@pytest.mark.parametrize("few", [None, 20], ids=["all", "filtered"])
def test_the_first_stage_gives_the_same_bits(monkeypatch, first_stage, index, weighting, few):
    allowed = None if few is None else (lambda view: np.arange(view.segment.n_rows) % few == 0)
    vectors = vectors_of(1, 40)
    wanted = search_index(index, vectors, weighting, 10, kernel="numpy", allowed=allowed)
    monkeypatch.setattr(sys.modules["sidr_rag.search.searcher"], "kernel_for", lambda n, prefer: first_stage)
    assert not first_stage.has("scan")
    assert not first_stage.has("rescore", "score")
    for got, reference in zip(search_index(index, vectors, weighting, 10, allowed=allowed), wanted, strict=True):
        assert np.array_equal(got[0], reference[0])
        assert np.array_equal(got[1], reference[1])


def test_the_first_stage_adds_weighted_postings(first_stage):
    rows, values = np.array([0, 2, 2], np.uint32), np.array([0.5, 1.5, 2.5], np.float32)
    starts, ends, weights = np.array([0, 1]), np.array([1, 3]), np.array([2.0, 3.0])
    got, wanted = np.zeros(3), np.zeros(3)
    first_stage.accumulate_weighted(rows, values, starts, ends, weights, got)
    NumpyKernel().accumulate_weighted(rows, values, starts, ends, weights, wanted)
    assert np.array_equal(got, wanted)


def test_completing_brings_the_rest():
    kernel = NumbaKernel(complete=False)
    steps = []
    kernel.complete(lambda: steps.append(kernel.has("scan", "rescore")))
    assert steps[0] is False
    assert kernel.has("score", "select", "scan", "rescore", "scan_batch", "count_lists", "fill_lists", "fill_bitmaps")
    n_steps = len(steps)
    kernel.complete(lambda: steps.append(True))
    assert len(steps) == n_steps


class InTwoStages:
    """A kernel whose second stage waits to be let on, and may fail."""

    def __init__(self, error=None):
        self.error, self.builds, self.let_on, self.begun = error, 0, threading.Event(), threading.Event()

    def build(self, pause):
        pause()
        self.builds += 1
        return self

    def complete(self, pause):
        pause()
        self.begun.set()
        assert self.let_on.wait(60)
        if self.error is not None:
            raise self.error


def test_a_kernel_is_handed_out_before_it_is_complete():
    kernel = InTwoStages()
    loader = KernelLoader(kernel.build)
    loader.get()
    assert kernel.begun.wait(60)
    assert loader.get() is loader.ready() is kernel
    waiting = threading.Thread(target=loader.wait)
    waiting.start()
    assert waiting.is_alive()
    kernel.let_on.set()
    waiting.join(60)
    assert loader.wait() is loader.get() is kernel
    assert kernel.builds == 1
    assert loader.failure is None


def test_a_kernel_that_cannot_be_completed_serves_as_it_is():
    kernel = InTwoStages(MemoryError("no room"))
    kernel.let_on.set()
    loader = KernelLoader(kernel.build)
    assert loader.wait() is kernel
    assert loader.failure == "MemoryError: no room"
    assert loader.get() is loader.wait() is kernel
    assert kernel.builds == 1
