"""A search on a torch device has the bits of the search on the processor; here the device is the processor too."""

from __future__ import annotations

import contextlib
import functools
import os
import weakref

import numpy as np
import pytest

from sidr_rag.errors import InvalidInputError
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.search.searcher import search_index
from sidr_rag.search.weighting import BINARY, Weighting
from sidr_rag.types import SparseVectors, TokenCounts

torch = pytest.importorskip("torch")

from sidr_rag.search.device import scorer as scorer_module  # noqa: E402
from sidr_rag.search.device import searcher as searcher_module  # noqa: E402
from sidr_rag.search.device import shard as shard_module  # noqa: E402
from sidr_rag.search.device.part import Part  # noqa: E402
from sidr_rag.search.device.scorer import scorer_for  # noqa: E402
from sidr_rag.search.device.searcher import DeviceSearcher  # noqa: E402
from sidr_rag.search.device.torch_scorer import TorchScorer  # noqa: E402

LEVELLED = Weighting((1, 2, 4), (1.0, 0.35, 0.25), length_exponent=0.8, length_slope=0.7)
WEIGHTINGS = [BINARY, Weighting((1, 4), (0.7, 0.9)), LEVELLED]


def triton_scorer():
    """Triton's kernels in its interpreter, if it was switched on before Triton was imported."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs TRITON_INTERPRET=1 before Triton is imported")
    pytest.importorskip("triton")
    from sidr_rag.search.device.triton_scorer import TritonScorer

    return TritonScorer()


@pytest.fixture(params=["torch", "triton"])
def scorer(request):
    return TorchScorer() if request.param == "torch" else triton_scorer()


def counts_of(rng, n, dim, longest):
    """Random bags, some empty, a few dimensions in many of them."""
    rows = []
    for _ in range(n):
        size = int(rng.integers(0, longest + 1))
        dims = np.unique((dim * rng.random(size) ** 3).astype(np.int64))
        rows.append((dims, rng.choice([1, 2, 4, 7], size=len(dims), p=[0.6, 0.2, 0.15, 0.05])))
    indptr = np.cumsum([0, *(len(d) for d, _ in rows)])
    return TokenCounts(
        indptr,
        np.concatenate([d for d, _ in rows]).astype(np.uint16 if dim <= 65_536 else np.int32),
        np.concatenate([c for _, c in rows]).astype(np.uint32),
        np.array([c.sum() for _, c in rows], dtype=np.uint32),
        dim,
    )


def index_of(rng, sizes, dim, *, longest=25, dead=0.0):
    views, next_seq = [], 1
    for i, n in enumerate(sizes):
        seqs = np.arange(next_seq, next_seq + n, dtype=np.uint64)
        next_seq += n
        view = SegmentView(f"{i:032x}", build_segment(counts_of(rng, n, dim, longest), seqs, (1, 2, 4)))
        gone = np.flatnonzero(rng.random(n) < dead)
        views.append(view.without(gone) if len(gone) else view)
    return BotIndex.of(dim, views)


def queries_of(rng, n, dim, active, weights="spread"):
    rows = []
    for _ in range(n):
        dims = np.unique((dim * rng.random(active) ** 2).astype(np.int32))
        if weights == "spread":
            values = np.exp(rng.normal(0, 2, len(dims)))
        elif weights == "equal":
            values = np.ones(len(dims))
        else:
            values = 10.0 ** rng.uniform(-6, 6, len(dims))
        rows.append((dims, values.astype(np.float32)))
    return SparseVectors.from_rows(rows, dim)


def bits(hits):
    return [(seqs.tolist(), scores.view(np.uint32).tolist()) for seqs, scores in hits]


def assert_same(searcher, index, vectors, weighting, k, allowed=None):
    right = search_index(index, vectors, weighting, k, allowed=allowed)
    assert bits(searcher.search(index, vectors, weighting, k, allowed=allowed)) == bits(right)
    return right


@pytest.mark.parametrize("weights", ["spread", "equal", "extreme"])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=["binary", "two levels", "levelled"])
def test_rankings_and_scores_are_those_of_the_processor(scorer, weighting, weights):
    rng = np.random.default_rng(7)
    index = index_of(rng, [200, 1, 129, 128], 500, longest=12, dead=0.2)
    searcher = DeviceSearcher("cpu", scorer=scorer)
    for n_queries, k in ((1, 10), (17, 1), (2, 700)):
        right = assert_same(searcher, index, queries_of(rng, n_queries, 500, 30, weights), weighting, k)
        assert any(len(seqs) for seqs, _ in right)


def test_frequent_dimensions_are_bits(scorer):
    rng = np.random.default_rng(8)
    index = index_of(rng, [400], 120, longest=90)
    part = Part.of(index.views)
    bit_part = part.with_bits(0.05, 64)
    assert [len(level.bits) for level in bit_part.levels][:1] == [2]
    assert len(bit_part.levels[0].dims) < len(part.levels[0].dims) / 2
    if scorer.most_frequent:
        assert_same(DeviceSearcher("cpu", scorer=scorer), index, queries_of(rng, 4, 120, 40), LEVELLED, 12)


def test_many_dimensions_need_wide_entries(scorer):
    rng = np.random.default_rng(9)
    index = index_of(rng, [200], 90_000)
    assert Part.of(index.views).levels[0].dims.dtype == torch.int32
    assert_same(DeviceSearcher("cpu", scorer=scorer), index, queries_of(rng, 3, 90_000, 3000), LEVELLED, 10)


def test_filters_and_deletions_come_before_the_cut(scorer):
    rng = np.random.default_rng(10)
    index = index_of(rng, [260, 140], 300, longest=15, dead=0.5)
    chosen = {view.name: rng.random(view.segment.n_rows) < 0.1 for view in index.views}
    searcher = DeviceSearcher("cpu", scorer=scorer)
    vectors = queries_of(rng, 6, 300, 25)
    right = assert_same(searcher, index, vectors, LEVELLED, 10, lambda view: chosen[view.name])
    assert any(len(seqs) for seqs, _ in right)
    assert_same(searcher, index, vectors, LEVELLED, 10, lambda view: np.zeros(view.segment.n_rows, dtype=np.bool_))


def test_nothing_to_find(scorer):
    rng = np.random.default_rng(11)
    searcher = DeviceSearcher("cpu", scorer=scorer)
    index = index_of(rng, [150], 100)
    empty = SparseVectors.from_rows([([], []), ([3], [0.0])], 100)
    assert [len(seqs) for seqs, _ in searcher.search(index, empty, BINARY, 5)] == [0, 0]
    assert searcher.search(index, SparseVectors.from_rows([], 100), BINARY, 5) == []
    assert [len(seqs) for seqs, _ in searcher.search(index, queries_of(rng, 2, 100, 9), BINARY, 0)] == [0, 0]
    assert_same(searcher, BotIndex.of(100, ()), queries_of(rng, 2, 100, 9), BINARY, 5)
    bagless = index_of(rng, [7], 100, longest=0)
    assert_same(DeviceSearcher("cpu", scorer=scorer), bagless, queries_of(rng, 2, 100, 9), BINARY, 5)


def test_weights_that_would_vanish_beside_others_still_find(scorer):
    rng = np.random.default_rng(12)
    index = index_of(rng, [400], 200)
    vectors = SparseVectors.from_rows([(np.arange(200), np.r_[1e6, np.full(199, 1e-6)])], 200)
    right = assert_same(DeviceSearcher("cpu", scorer=scorer), index, vectors, BINARY, 400)
    assert len(right[0][0]) > np.sum(index.views[0].segment.levels[0].doc_dims == 0)


def test_a_mass_of_equal_scores_goes_to_the_processor(scorer, monkeypatch):
    rng = np.random.default_rng(13)
    index = index_of(rng, [500, 200], 40)
    monkeypatch.setattr(searcher_module, "_MOST_CANDIDATES", 50)
    monkeypatch.setattr(shard_module, "_PAIRS", 3)
    gone = []

    def counted(index, vectors, *arguments, **options):
        gone.append(vectors.row(0)[0].tolist())
        return search_index(index, vectors, *arguments, **options)

    monkeypatch.setattr(searcher_module, "search_index", counted)
    spread = queries_of(rng, 1, 40, 30).row(0)
    vectors = SparseVectors.from_rows([([0], [1.0]), spread, ([0, 1], [1.0, 1.0])], 40)
    right = assert_same(DeviceSearcher("cpu", scorer=scorer), index, vectors, BINARY, 3)
    assert len(set(right[0][1].tolist())) == 1
    assert gone == [[0], [0, 1]]  # the query beside them stays on the device


def test_what_cannot_match_is_left_out_and_the_rest_refused(scorer):
    rng = np.random.default_rng(20)
    index = index_of(rng, [150], 100)
    searcher = DeviceSearcher("cpu", scorer=scorer)
    rows = [([2, 3, 5], [1.0, -2.0, 0.5]), ([4], [-1.0]), ([], [])]
    narrow = SparseVectors.from_rows(rows, 6)  # fewer dimensions than the index has
    right = assert_same(searcher, index, narrow, LEVELLED, 10)
    assert [bool(len(seqs)) for seqs, _ in right] == [True, False, False]
    infinite = SparseVectors.from_rows([([2, 3], [np.inf, 1.0])], 100)
    assert_same(searcher, index, infinite, BINARY, 200)
    with pytest.raises(InvalidInputError, match=r"0\.\.99"):
        searcher.search(index, SparseVectors.from_rows([([100], [1.0])], 101), BINARY, 5)


def test_deletions_are_sent_to_the_device_once(monkeypatch):
    rng = np.random.default_rng(21)
    index = index_of(rng, [150, 90], 100, dead=0.3)
    searcher = DeviceSearcher("cpu", scorer=TorchScorer())
    vectors = queries_of(rng, 2, 100, 9)
    assert_same(searcher, index, vectors, BINARY, 5)
    [part] = searcher._shards[0]._parts
    held = searcher._shards[0]._masks[part.names[0]][1]
    assert_same(searcher, index, vectors, BINARY, 7)
    assert searcher._shards[0]._masks[part.names[0]][1] is held
    # A filter's masks are new each time, and do not replace it.
    assert_same(searcher, index, vectors, BINARY, 7, lambda view: rng.random(view.segment.n_rows) < 2)
    assert searcher._shards[0]._masks[part.names[0]][1] is held
    after = index.changed(add=[], delete=index.views[1].segment.seqs[:50], generation=1, next_seq=1000)
    assert_same(searcher, after, vectors, BINARY, 7)
    assert searcher._shards[0]._masks[part.names[0]][1].sum() < held.sum()


def test_a_part_that_is_gone_is_freed_before_the_next_is_made(scorer, monkeypatch):
    rng = np.random.default_rng(22)
    index = index_of(rng, [100, 60], 100)
    searcher = DeviceSearcher("cpu", scorer=scorer)
    vectors = queries_of(rng, 2, 100, 9)
    assert_same(searcher, BotIndex.of(100, index.views[:1]), vectors, BINARY, 5)
    gone = weakref.ref(searcher._shards[0]._parts[0].lengths)
    build = Part.of.__func__
    there = []

    def noted(cls, views):
        there.append(gone() is not None)
        return build(cls, views)

    monkeypatch.setattr(Part, "of", classmethod(noted))
    assert_same(searcher, BotIndex.of(100, index.views[1:]), vectors, BINARY, 5)
    assert there == [False]
    searcher.close()
    assert searcher.nbytes == 0


def test_long_passages_make_shorter_parts(monkeypatch):
    rng = np.random.default_rng(23)
    monkeypatch.setattr(shard_module, "_MOST_ENTRIES", 1000)
    index = index_of(rng, [60, 60, 200, 5], 100)
    searcher = DeviceSearcher("cpu", scorer=TorchScorer())
    assert_same(searcher, index, queries_of(rng, 2, 100, 10), LEVELLED, 30)
    assert len(searcher._shards[0]._parts) > 2


def test_the_choice_of_a_scorer(monkeypatch):
    device = torch.device("cpu")
    assert isinstance(scorer_for(device), TorchScorer)
    assert isinstance(scorer_for(device, "torch"), TorchScorer)
    assert isinstance(scorer_for(device, "triton"), type(triton_scorer()))


def test_triton_that_cannot_compile_gives_way_to_torch(monkeypatch):
    broken = type(triton_scorer())

    def no_compiler(*_):
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(broken, "block_maxima", no_compiler)
    monkeypatch.setattr(scorer_module, "on", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(Part, "to", lambda part, device, pin=False: part)
    monkeypatch.setattr(torch, "ones", functools.partial(lambda make, *a, device=None, **o: make(*a, **o), torch.ones))
    with pytest.raises(InvalidInputError, match=r"no C compiler.*kernel='torch'"):
        scorer_for(torch.device("cuda"), "triton")
    with pytest.warns(RuntimeWarning, match=r"no C compiler.*same results"):
        assert isinstance(scorer_for(torch.device("cuda")), TorchScorer)


def test_only_new_segments_are_copied(scorer, monkeypatch):
    rng = np.random.default_rng(14)
    index = index_of(rng, [200, 50], 300, longest=12)
    searcher = DeviceSearcher("cpu", scorer=scorer)
    vectors = queries_of(rng, 3, 300, 20)
    copied = []
    build = Part.of.__func__

    def counted(cls, views):
        copied.extend(view.name for view in views)
        return build(cls, views)

    monkeypatch.setattr(Part, "of", classmethod(counted))
    assert_same(searcher, index, vectors, LEVELLED, 10)
    assert copied == [view.name for view in index.views]
    seqs = np.arange(1000, 1060, dtype=np.uint64)
    fresh = SegmentView("f" * 32, build_segment(counts_of(rng, 60, 300, 12), seqs, (1, 2, 4)))
    after = index.changed(add=[fresh], delete=index.views[0].segment.seqs[:30], generation=1, next_seq=1060)
    assert_same(searcher, after, vectors, LEVELLED, 10)
    assert copied[2:] == ["f" * 32]
    assert searcher.nbytes > 0


def test_many_small_parts_become_one(scorer, monkeypatch):
    rng = np.random.default_rng(15)
    monkeypatch.setattr(shard_module, "_MOST_SMALL_PARTS", 3)
    searcher = DeviceSearcher("cpu", scorer=scorer)
    index = index_of(rng, [20] * 8, 100)
    vectors = queries_of(rng, 2, 100, 10)
    for n in range(1, 9):
        assert_same(searcher, BotIndex.of(100, index.views[:n]), vectors, BINARY, 5)
        assert len(searcher._shards[0]._parts) <= 3


def test_parts_end_at_a_number_of_rows(monkeypatch):
    rng = np.random.default_rng(16)
    monkeypatch.setattr(shard_module, "MOST_ROWS", 100)
    searcher = DeviceSearcher("cpu", scorer=TorchScorer())
    index = index_of(rng, [60, 30, 50, 150, 20], 100)
    assert_same(searcher, index, queries_of(rng, 2, 100, 10), LEVELLED, 30)
    assert [part.n_rows for part in searcher._shards[0]._parts] == [90, 50, 150, 20]


def test_what_does_not_fit_is_streamed():
    rng = np.random.default_rng(17)
    index = index_of(rng, [300, 200], 200)
    searcher = DeviceSearcher("cpu", memory=0, scorer=TorchScorer())
    assert_same(searcher, index, queries_of(rng, 4, 200, 12), LEVELLED, 20)


@pytest.mark.parametrize("devices", [2, 3, 5])
def test_devices_share_the_index(devices):
    rng = np.random.default_rng(18)
    for sizes in ([40, 300, 20, 60], [50], []):
        index = index_of(rng, sizes, 200)
        searcher = DeviceSearcher(["cpu"] * devices, scorer=TorchScorer())
        assert_same(searcher, index, queries_of(rng, 5, 200, 12), LEVELLED, 20)


def test_threads_take_turns():
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(19)
    index = index_of(rng, [300], 200)
    searcher = DeviceSearcher("cpu")
    batches = [queries_of(rng, 3, 200, 12) for _ in range(12)]
    right = [bits(search_index(index, batch, LEVELLED, 10)) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda batch: bits(searcher.search(index, batch, LEVELLED, 10)), batches))
    assert found == right
