"""The compiled scans by integers against the NumPy reference: the same bits, whatever the data."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.errors import InvalidInputError
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.search import bounds, plan, scan
from sidr_rag.search.bounds import Query, integer_weights, scale_of, steps_of
from sidr_rag.search.cpu import NumbaKernel
from sidr_rag.search.reference import NumpyKernel
from sidr_rag.search.searcher import SearchPool, search_index
from sidr_rag.search.weighting import BINARY, Weighting
from sidr_rag.types import SparseVectors, TokenCounts

REPO = Path(__file__).resolve().parents[2]
DIM = 300
LEVELS = (1, 2, 4)
LEVELLED = Weighting(LEVELS, (1.0, 0.35, 0.25))
LENGTHS = Weighting((1,), (1.0,), length_exponent=0.5, length_slope=0.4)
ALL = Weighting((1, 4), (0.7, 0.9), length_exponent=1.3, length_slope=1.0)
WEIGHTINGS = {"binary": BINARY, "levelled": LEVELLED, "lengths": LENGTHS, "all": ALL}
# How often a dimension is held: a few always, many seldom.
SHARES = np.minimum(1.0, 8.0 / (np.arange(DIM) + 4.0) ** 1.3)


@pytest.fixture(scope="module")
def kernel():
    return NumbaKernel()


def counted(counts):
    """`TokenCounts` of a dense matrix of counts."""
    rows, dims = np.nonzero(counts)
    indptr = np.searchsorted(rows, np.arange(len(counts) + 1)).astype(np.int64)
    lengths = counts.sum(axis=1).astype(np.uint32)
    return TokenCounts(indptr, dims.astype(np.uint16), counts[rows, dims].astype(np.uint32), lengths, counts.shape[1])


def random_counts(rng, n_rows, dim=DIM):
    held = rng.random((n_rows, dim), dtype=np.float32) < SHARES[:dim]
    return held * rng.integers(1, 6, held.shape, dtype=np.uint8)


def index_of(*matrices, deleted=None, levels=LEVELS):
    views, first = [], 1
    for i, counts in enumerate(matrices):
        seqs = np.arange(first, first + len(counts), dtype=np.uint64)
        first += len(counts)
        views.append(SegmentView(f"s{i}", build_segment(counted(counts), seqs, levels)))
        if deleted is not None:
            views[-1] = views[-1].without(np.flatnonzero(deleted(len(counts))))
    return BotIndex.of(matrices[0].shape[1], views)


def vectors_of(rows, dim=DIM):
    return SparseVectors.from_rows(rows, dim)


def random_query(rng, n, weights="flat", dim=DIM):
    dims = np.sort(rng.choice(dim, n, replace=False))
    kinds = {
        "flat": lambda: rng.random(n) * 0.2 + 0.5,
        "equal": lambda: np.full(n, 0.3),
        "steep": lambda: 2.0 ** -rng.integers(0, 40, n),
        "spread": lambda: 10.0 ** rng.uniform(-6, 6, n),
        "tiny": lambda: rng.random(n) * 1e-36 + 1e-36,
        "denormal": lambda: np.full(n, 1e-44),
        "huge": lambda: rng.random(n) * 1e38 + 1e37,
        "one giant": lambda: np.where(np.arange(n) == n // 2, 1e6, 1e-6),
    }
    return dims, kinds[weights]().astype(np.float32)


def same(index, vectors, weighting, k, **arguments):
    """The compiled result, checked against the reference."""
    expected = search_index(index, vectors, weighting, k, kernel="numpy", **arguments)
    got = search_index(index, vectors, weighting, k, kernel="numba", **arguments)
    for (seqs, scores), (their_seqs, their_scores) in zip(got, expected, strict=True):
        assert seqs.tolist() == their_seqs.tolist()
        assert scores.tobytes() == their_scores.tobytes()
    return got


@pytest.fixture(scope="module")
def borders():
    """One segment for each size around a block's, with deletions."""
    rng = np.random.default_rng(1)
    made = {}
    for n_rows in (1, 511, 513, 2_048, 65_535, 65_536, 65_537):
        counts = random_counts(rng, n_rows, 80)
        counts[rng.random(n_rows) < 0.05] = 0
        made[n_rows] = index_of(counts, deleted=lambda n: rng.random(n) < 0.2)
    return made


@pytest.mark.parametrize("weighting", WEIGHTINGS.values(), ids=WEIGHTINGS)
@pytest.mark.parametrize("n_rows", [1, 511, 513, 2_048, 65_535, 65_536, 65_537])
def test_around_the_borders_of_chunks_and_blocks(borders, n_rows, weighting):
    index = borders[n_rows]
    rng = np.random.default_rng(n_rows)
    vectors = vectors_of([random_query(rng, n, dim=80) for n in (1, 20, 80)], 80)
    last = np.zeros(n_rows, bool)
    last[-3:] = True
    for k in (1, 10, n_rows + 5) if n_rows < 3_000 else (1, 10):
        same(index, vectors, weighting, k)
        same(index, vectors, weighting, k, allowed=lambda _: last)
        same(index, vectors, weighting, k, allowed=lambda v: v.segment.seqs % 3 == 0)


@pytest.fixture(scope="module")
def middle():
    """Three segments of some thousands of rows: bitmaps, lists and deletions."""
    rng = np.random.default_rng(2)
    return index_of(*(random_counts(rng, n) for n in (3_000, 700, 5_000)), deleted=lambda n: rng.random(n) < 0.1)


@pytest.mark.parametrize("kind", ["flat", "equal", "steep", "spread", "tiny", "denormal", "huge", "one giant"])
@pytest.mark.parametrize("weighting", WEIGHTINGS.values(), ids=WEIGHTINGS)
def test_weights_of_every_size(middle, kind, weighting):
    rng = np.random.default_rng(3)
    vectors = vectors_of([random_query(rng, n, kind) for n in (1, 2, 30, 250)])
    for k in (0, 1, 10, 300, 4_000, 10**6):
        same(middle, vectors, weighting, k)


@pytest.mark.parametrize("k", [1, 10, 100, 3_000])
def test_masses_of_ties(k):
    """Equal passages: more candidates than a scan takes, so plain accumulation must serve, lowest rows first."""
    rng = np.random.default_rng(4)
    counts = np.tile(random_counts(rng, 1), (9_000, 1))
    counts[[4_000, 8_999]] = random_counts(rng, 2)
    index = index_of(counts)
    vectors = vectors_of([(np.arange(DIM), np.full(DIM, 0.1)), random_query(rng, 100)])
    for weighting in WEIGHTINGS.values():
        same(index, vectors, weighting, k)


def test_too_many_candidates_are_given_up(kernel):
    segment = index_of(np.ones((9_000, 3), np.uint8)).views[0].segment
    query = Query(np.arange(3, dtype=np.int32), np.ones(3), np.array([1.0, 0.0, 0.0]))
    scale = scale_of(query, segment.longest, 1.0)
    nothing = np.empty(0, np.uint32), np.empty(0, np.uint16)
    assert kernel.scan(segment, query, scale, 10, *nothing, (0, 1), 8_999) is None
    assert kernel.scan(segment, query, scale, 10, *nothing, (0, 1), 9_000).tolist() == list(range(9_000))


def test_one_dimension():
    counts = np.arange(5_000)[:, None] % 7
    index = index_of(counts.astype(np.uint8))
    for weighting in WEIGHTINGS.values():
        same(index, vectors_of([([0], [0.7])], 1), weighting, 10)


def test_empty_passages_and_queries():
    index = index_of(np.zeros((3_000, DIM), np.uint8))
    rng = np.random.default_rng(5)
    assert [len(s) for s, _ in same(index, vectors_of([random_query(rng, 20), ([], []), ([3], [0.0])]), ALL, 5)] == [
        0
    ] * 3


def test_a_passage_far_longer_than_the_others():
    rng = np.random.default_rng(6)
    dim = 4_000
    held = rng.random((3_000, dim), dtype=np.float32) < np.minimum(1.0, 20.0 / (np.arange(dim) + 8.0) ** 1.2)
    counts = held.astype(np.uint8)
    counts[1_234] = 1
    index = index_of(counts)
    vectors = vectors_of([random_query(rng, n, dim=dim) for n in (5, 800, 3_999)], dim)
    for weighting in WEIGHTINGS.values():
        same(index, vectors, weighting, 10)


@pytest.mark.parametrize("num_threads", [2, 5, 16])
def test_threads_change_no_bit(num_threads):
    rng = np.random.default_rng(7)
    big = index_of(random_counts(rng, 3_000), random_counts(rng, 140_000), deleted=lambda n: rng.random(n) < 0.1)
    vectors = vectors_of([random_query(rng, n) for n in (1, 40, 200)])
    for weighting in (BINARY, ALL):
        alone = search_index(big, vectors, weighting, 20, kernel="numba")
        pool = SearchPool(num_threads)
        for many in (
            search_index(big, vectors, weighting, 20, kernel="numba", pool=pool),
            [search_index(big, vectors_of([q]), weighting, 20, kernel="numba", pool=pool)[0] for q in vectors],
        ):
            for (seqs, scores), (their_seqs, their_scores) in zip(alone, many, strict=True):
                assert seqs.tolist() == their_seqs.tolist()
                assert scores.tobytes() == their_scores.tobytes()
        pool.close()


@pytest.mark.parametrize("weighting", WEIGHTINGS.values(), ids=WEIGHTINGS)
def test_bitmaps_are_left_out_where_they_cannot_matter(middle, weighting):
    """Rare dimensions with great weights, frequent ones with small weights: of every proportion."""
    df = middle.df
    rare, frequent = np.flatnonzero((df > 20) & (df < 200)), np.flatnonzero(df > 1_500)
    assert all(len(view.segment.postings.bitmap_keys) for view in middle.views if view.segment.n_rows > 2_048)
    rng = np.random.default_rng(20)
    for share in (1e-4, 0.01, 0.05, 0.1, 0.3, 1.0):
        rows = []
        for _ in range(4):
            dims = np.concatenate([rng.choice(rare, 10, replace=False), rng.choice(frequent, 8, replace=False)])
            rows.append((dims, np.concatenate([rng.random(10) + 0.5, share * (rng.random(8) + 0.5)])))
        for k in (1, 10, 100):
            same(middle, vectors_of(rows), weighting, k)
            same(middle, vectors_of(rows), weighting, k, allowed=lambda v: v.segment.seqs % 7 == 0)


# Batches


@pytest.fixture
def always_batched(monkeypatch):
    """Batches wherever they are possible; counts them."""
    for name in ("_FORWARD_TABLE", "_FORWARD_ENTRY"):
        monkeypatch.setattr(plan, name, 0.0)
    batches = []
    original = NumbaKernel.scan_batch

    def counting(self, *arguments):
        found = original(self, *arguments)
        batches.append([None if f is None else len(f) for f in found])
        return found

    monkeypatch.setattr(NumbaKernel, "scan_batch", counting)
    return batches


@pytest.mark.parametrize("kind", ["flat", "equal", "spread", "tiny"])
@pytest.mark.parametrize("weighting", [LEVELLED, ALL], ids=["levelled", "all"])
def test_batches_give_the_bits_of_single_queries(middle, always_batched, weighting, kind):
    rng = np.random.default_rng(8)
    queries = [random_query(rng, int(n), kind) for n in rng.integers(1, DIM, 70)]
    queries[5] = ([], [])
    for k in (3, 256):
        same(middle, vectors_of(queries), weighting, k)
    assert len(always_batched) == (0 if kind == "tiny" else 2 * 3 * 3)


def test_batches_with_masks_and_threads(middle, always_batched):
    rng = np.random.default_rng(9)
    vectors = vectors_of([random_query(rng, 100) for _ in range(33)])
    pool = SearchPool(4)
    for weighting in WEIGHTINGS.values():
        same(middle, vectors, weighting, 10, pool=pool)
        same(middle, vectors, weighting, 10, allowed=lambda v: v.segment.seqs % 2 == 0, pool=pool)
        nothing = same(middle, vectors, weighting, 10, allowed=lambda v: np.zeros(v.segment.n_rows, bool), pool=pool)
        assert not any(len(seqs) for seqs, _ in nothing)
    pool.close()
    assert always_batched


def test_a_batch_that_overflows_falls_back_query_by_query(always_batched):
    counts = np.ones((6_000, 40), np.uint8)
    counts[::2, 20:] = 0
    rng = np.random.default_rng(10)
    vectors = vectors_of([random_query(rng, 30, "equal", 40) for _ in range(32)], 40)
    same(index_of(counts), vectors, BINARY, 10)
    assert None in always_batched[0]


def test_candidates_of_a_batch_are_pruned_while_it_runs(always_batched):
    """Rising scores: every row is among the best so far, and the room for candidates is used again and again."""
    counts = (np.arange(60)[None, :] < np.arange(60_000)[:, None] // 1_000).astype(np.uint8)
    rng = np.random.default_rng(11)
    vectors = vectors_of([(np.arange(60), rng.random(60).astype(np.float32) + 0.5) for _ in range(32)], 60)
    got = same(index_of(counts), vectors, BINARY, 3)
    assert {tuple(seqs.tolist()) for seqs, _ in got} == {(59_001, 59_002, 59_003)}
    assert all(n is not None and n < 2_000 for n in always_batched[0])


def test_wide_vocabularies_are_searched_one_by_one(always_batched):
    dim = 70_000
    rng = np.random.default_rng(12)
    indptr = np.arange(0, 3_000 * 20 + 1, 20, dtype=np.int64)
    dims = np.concatenate([np.sort(rng.choice(dim, 20, replace=False)) for _ in range(3_000)]).astype(np.int32)
    counts = TokenCounts(indptr, dims, np.ones(len(dims), np.uint32), np.full(3_000, 20, np.uint32), dim)
    index = BotIndex.of(dim, [SegmentView("s", build_segment(counts, np.arange(3_000, dtype=np.uint64), (1,)))])
    same(index, vectors_of([random_query(rng, 3_000, dim=dim) for _ in range(32)], dim), LENGTHS, 10)
    assert not always_batched


def test_cheap_queries_are_not_batched_and_dear_ones_are(middle):
    kernel = NumbaKernel()
    weighting_queries = {
        i: Query(np.arange(n, dtype=np.int32), np.ones(n), np.array([1.0, 0.0, 0.0]))
        for i, n in enumerate([300, 2] * 40)
    }
    parts = [scan.Part(view.segment, None, None, None) for view in middle.views]
    df = np.full(DIM, 10**9)
    groups = plan.groups_of(kernel, weighting_queries, parts, df, 10)
    assert sorted(i for g in groups for i in g.members) == list(range(80))
    batched = [g for g in groups if g.scales]
    assert [[*g.members] for g in batched] == [list(range(0, 64, 2))]  # eight more do not repay a scan
    assert not any(g.scales for g in plan.groups_of(kernel, weighting_queries, parts, np.zeros(DIM, np.int64), 10))
    assert not any(g.scales for g in plan.groups_of(NumpyKernel(), weighting_queries, parts, df, 10))
    assert not any(g.scales for g in plan.groups_of(kernel, weighting_queries, parts, df, 10_000))


# The bounds of `sidr_rag.search.bounds`, in exact arithmetic


@settings(max_examples=200, deadline=None)
@given(
    weights=st.lists(st.floats(2**-20, 2**20, width=32), min_size=1, max_size=30),
    gains=st.lists(st.sampled_from([0.0, 1.0, 0.35, 3.0]), min_size=1, max_size=3),
    factors=st.lists(st.floats(2**-10, 2**10), min_size=1, max_size=4),
    data=st.data(),
)
def test_integer_sums_keep_their_bounds(weights, gains, factors, data):
    query = Query(np.arange(len(weights), dtype=np.int32), np.array(weights), np.array(gains))
    bags = [data.draw(st.sets(st.integers(0, len(weights) - 1))) for _ in gains]
    longest = np.array([len(bag) for bag in bags], np.int64)
    top = max(factors)
    scale = scale_of(query, longest, top)
    if not scale:
        assert not any(gain and bag for gain, bag in zip(gains, bags, strict=True))
        return
    exact, total, addends = Fraction(0), 0, 0
    for level, (gain, bag) in enumerate(zip(gains, bags, strict=True)):
        if gain:
            integers = integer_weights(query, level, scale)
            total += sum(int(integers[t]) for t in bag)
            addends += len(bag)
            exact += sum(Fraction(gain) * Fraction(weights[t]) for t in bag)
    assert total <= 65_535
    slack = Fraction(1, 100)
    assert total - addends - slack <= exact * Fraction(scale) <= total + slack
    for factor, step in zip(factors, steps_of(np.array(factors), top).tolist(), strict=True):
        key = (total * step >> 16) + (total > 0)
        value = exact * Fraction(factor) * Fraction(scale) * Fraction(65_535) / Fraction(top) / 65_536
        assert key - addends - 2 - slack <= value
        assert value <= key + 1 + slack


def test_no_scale_where_integers_could_not_tell_rows_apart():
    one = Query(np.zeros(1, np.int32), np.ones(1), np.ones(1))
    assert scale_of(one, np.array([5]), 1.0) > 60_000
    assert scale_of(one, np.array([0]), 1.0) == 0.0
    assert scale_of(one, np.array([5]), 1e-35) == 0.0
    assert scale_of(one, np.array([5]), 1e35) == 0.0
    for weight in (1e-40, 1e38, np.inf):
        assert scale_of(Query(one.dims, np.array([weight]), one.gains), np.array([5]), 1.0) == 0.0
    many = Query(np.arange(60_000, dtype=np.int32), np.ones(60_000), np.ones(1))
    assert scale_of(many, np.array([60_000]), 1.0) == 0.0
    assert scale_of(many, np.array([100]), 1.0) > 0.0
    assert bounds.BATCH == 32


def test_dimensions_outside_the_index_never_reach_a_kernel(middle):
    for dims in ([DIM], [-1], [2**31 - 1]):
        broken = SparseVectors(np.array([0, 1]), np.array(dims, np.int32), np.ones(1, np.float32), DIM)
        with pytest.raises(InvalidInputError, match=r"vectors\.dims must lie in 0\.\.299"):
            search_index(middle, broken, BINARY, 10)


@pytest.mark.parametrize("features", ["", "+avx2,+avx", "+sse4.1"])
def test_any_processor_gives_the_same_bits(tmp_path, features):
    """The vector code as other processors would be given it: 128 bits, and 256."""
    if "avx2" in features and "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("needs AVX2")
    code = f"""
    import sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import numpy as np
    from test_scans import ALL, BINARY, index_of, random_counts, random_query, same, vectors_of
    from sidr_rag.search import plan
    rng = np.random.default_rng(0)
    index = index_of(random_counts(rng, 3_000), deleted=lambda n: rng.random(n) < 0.2)
    vectors = vectors_of([random_query(rng, 100) for _ in range(32)])
    for weighting in (BINARY, ALL):
        same(index, vectors, weighting, 10)
    plan._FORWARD_TABLE = plan._FORWARD_ENTRY = 0.0
    same(index, vectors, ALL, 10)
    print("same")
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": "", "NUMBA_CPU_NAME": "generic"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        cwd=REPO,
        env={**environment, "NUMBA_CPU_FEATURES": features, "OMP_NUM_THREADS": "1"},
    )
    assert (done.stdout.strip(), done.returncode) == ("same", 0), done.stderr
