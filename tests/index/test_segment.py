import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.errors import IndexFormatError
from sidr_rag.index import builder
from sidr_rag.index import segment as segment_module
from sidr_rag.index.arrays import read_arrays, write_arrays
from sidr_rag.index.builder import build_segment
from sidr_rag.index.merge import MOST_ROWS, merge_segments, plan_compaction, plan_merge
from sidr_rag.index.postings import Postings
from sidr_rag.index.segment import Segment
from sidr_rag.search import kernel_for, kernels
from sidr_rag.types import TokenCounts

DIM = 12
LEVELS = (1, 2, 4)
bags = st.lists(st.dictionaries(st.integers(0, DIM - 1), st.integers(1, 6), max_size=8), max_size=12)


def counts_of(documents, dim=DIM):
    indptr, dims, counts = [0], [], []
    for document in documents:
        for t in sorted(document):
            dims.append(t)
            counts.append(document[t])
        indptr.append(len(dims))
    return TokenCounts(
        np.array(indptr, np.int64),
        np.array(dims, np.uint16 if dim <= 65_536 else np.int32),
        np.array(counts, np.uint32),
        np.array([sum(d.values()) for d in documents], np.uint32),
        dim,
    )


def segment_of(documents, first=1, levels=LEVELS, dim=DIM):
    return build_segment(counts_of(documents, dim), np.arange(first, first + len(documents), dtype=np.uint64), levels)


def check_against(segment, documents, seqs, dim=DIM):
    """Every list of a segment says what the dictionaries say."""
    assert segment.seqs.tolist() == list(seqs)
    assert segment.lengths.tolist() == [sum(d.values()) for d in documents]
    for level in segment.levels:
        kept = [sorted(t for t, n in d.items() if n >= level.threshold) for d in documents]
        assert [level.dims_of(i).tolist() for i in range(len(documents))] == kept
        postings = {t: [i for i, bag in enumerate(kept) if t in bag] for t in range(dim)}
        first = [each.threshold for each in segment.levels].index(level.threshold) * dim
        assert {t: segment.postings.rows_of(first + t).tolist() for t in range(dim)} == postings
        assert segment.postings.counts(first, dim).tolist() == [len(rows) for rows in postings.values()]


def check_equal(a, b):
    assert a.dim == b.dim
    np.testing.assert_array_equal(a.seqs, b.seqs)
    np.testing.assert_array_equal(a.lengths, b.lengths)
    assert a.thresholds == b.thresholds
    for x, y, names in (
        (a, b, ("doc_indptr", "doc_dims")),
        (a.postings, b.postings, [f.name for f in dataclasses.fields(Postings)]),
    ):
        for name in names:
            left, right = getattr(x, name), getattr(y, name)
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert getattr(left, "dtype", None) == getattr(right, "dtype", None), name


@given(bags)
def test_a_segment_says_what_the_texts_say(documents):
    check_against(segment_of(documents), documents, range(1, len(documents) + 1))


def test_a_large_segment_has_the_compiler_loaded_and_a_small_one_has_not(monkeypatch):
    asked = []
    monkeypatch.setattr(kernels._compiled, "get", lambda: asked.append("get"))
    monkeypatch.setattr(kernels._compiled, "ready", lambda: asked.append("ready"))
    assert kernels.kernel_for_building(149_999) is None
    assert kernels.kernel_for_building(150_000) is None
    assert asked == ["ready", "get"]


@given(bags, st.integers(1, 7))
def test_postings_are_equal_however_the_entries_are_chunked(documents, entries):
    whole = segment_of(documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "_CHUNK_ENTRIES", entries)
        patch.setattr(builder, "kernel_for_building", lambda n_rows: None)
        check_equal(segment_of(documents), whole)


@settings(max_examples=40)
@given(bags)
def test_saved_and_opened_segments_are_equal(tmp_path_factory, documents):
    path = tmp_path_factory.mktemp("seg") / "s"
    segment = segment_of(documents)
    segment.save(path)
    check_equal(Segment.open(path), segment)


@given(st.lists(bags, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_merging_gives_the_segment_of_the_living(parts, random):
    segments, survivors, seqs, first = [], [], [], 1
    for documents in parts:
        live = None if random.random() < 0.4 else np.array([random.random() < 0.6 for _ in documents], dtype=np.bool_)
        segments.append((segment_of(documents, first), live))
        for i, document in enumerate(documents):
            if live is None or live[i]:
                survivors.append(document)
                seqs.append(first + i)
        first += len(documents) + random.randrange(3)
    check_against(merge_segments(segments), survivors, seqs)


def test_dimension_types_follow_their_range():
    assert segment_of([{70_000: 1}, {3: 2}], dim=80_000).doc_dims.dtype == np.int32
    assert segment_of([{1: 1}, {3: 2}]).doc_dims.dtype == np.uint16


@pytest.fixture(params=["numpy", "numba"])
def inverting(request, monkeypatch):
    """The builder in either language."""
    kernel = None if request.param == "numpy" else kernel_for(1, prefer="numba")
    monkeypatch.setattr(builder, "kernel_for_building", lambda n_rows: kernel)


@pytest.mark.usefixtures("inverting")
@pytest.mark.parametrize("n_rows", [511, 512, 513, 2_047, 2_048, 2_049, 65_535, 65_536, 65_537, 66_000])
def test_blocks_chunks_and_bitmaps(tmp_path, n_rows):
    """A segment of every border, with dimensions rare and frequent: the same lists in memory and from its file."""
    rng = np.random.default_rng(n_rows)
    shares = np.array([1.0, 0.5, 0.06, 0.051, 0.049, 0.01, 0.0001, 0.0])
    held = rng.random((n_rows, len(shares))) < shares
    counts = held * rng.integers(1, 5, held.shape)
    rows, dims = np.nonzero(held)
    given = TokenCounts(
        np.searchsorted(rows, np.arange(n_rows + 1)).astype(np.int64),
        dims.astype(np.uint16),
        counts[rows, dims].astype(np.uint32),
        counts.sum(axis=1).astype(np.uint32),
        len(shares),
    )
    segment = build_segment(given, np.arange(n_rows, dtype=np.uint64), LEVELS)
    postings = segment.postings
    assert (len(postings.bitmap_keys) > 0) == (n_rows >= 2_048)
    segment.save(tmp_path / "s")
    for each in (postings, Segment.open(tmp_path / "s").postings):
        for level, threshold in enumerate(LEVELS):
            for t in range(len(shares)):
                expected = np.flatnonzero(counts[:, t] >= threshold)
                np.testing.assert_array_equal(each.rows_of(level * len(shares) + t), expected)
    arrays = read_arrays(tmp_path / "s")[0]
    inverted = ("list_keys", "list_lens", "rows", "bitmap_keys", "bitmap_counts", "bitmaps")
    assert [sum(kind) for kind in zip(*segment.level_bytes(), strict=True)] == [
        sum(arrays[name].nbytes for name in names) for names in (("doc_lens", "doc_dims"), inverted)
    ]
    live = rng.random(n_rows) < 0.9
    merged = merge_segments([(segment, live), (segment_of([{0: 1}], first=n_rows, dim=len(shares)), None)])
    check_equal(merged, rebuilt(merged))
    assert merged.n_rows == live.sum() + 1


def rebuilt(segment):
    return dataclasses.replace(
        segment,
        postings=builder.build_postings(segment.doc_indptr, segment.doc_dims, segment.n_rows, len(LEVELS), segment.dim),
    )


def test_rows_of_finds_only_what_is_here():
    segment = build_segment(counts_of([{0: 1}] * 3), np.array([2, 5, 9], np.uint64), (1,))
    assert segment.rows_of(np.array([1, 2, 9, 10], np.uint64)).tolist() == [0, 2]
    assert segment.rows_of(np.empty(0, np.uint64)).tolist() == []


# Hostile files: their checksums are right, their contents are not.


def tampered(tmp_path, documents=({0: 1, 3: 2}, {3: 1}, {0: 4}), levels=LEVELS, **changes):
    path = tmp_path / "s"
    segment_of(list(documents), levels=levels).save(path)
    arrays, meta = read_arrays(path)
    arrays = {name: array.copy() for name, array in arrays.items()}
    meta = {k: v for k, v in meta.items() if not k.startswith("crc32.")}
    for name, value in changes.pop("meta", {}).items():
        meta[name] = value
    for name, value in changes.pop("arrays", {}).items():
        if value is None:
            del arrays[name]
        else:
            arrays[name] = value
    write_arrays(path, arrays, meta)
    return path


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # The right ones: doc_lens 2 1 1 1 0 1 0 0 1, doc_dims 0 3 3 0 3 0 0, list_keys 0 3 12 15 24,
        # list_lens 2 2 1 1 1, rows 0 2 0 1 2 0 2, bitmaps none.
        ("rows", np.array([0, 2, 0, 1, 2, 0, 9], np.uint16)),
        ("rows", np.array([0, 2, 0, 1, 2, 0], np.uint16)),
        ("rows", np.array([0, 2, 0, 1, 2, 0, 2], np.int32)),
        ("rows", np.array([0, 2, 0, 1, 2, 0, 2], np.float32)),
        ("doc_dims", np.array([0, 3, 3, 0, 3, 0, DIM], np.uint16)),
        ("doc_dims", np.array([0, 3, 3, 0, 3, 0, -1], np.int32)),
        ("doc_dims", np.array([0, 3, 3, 0, 3, 0, 0], np.float32)),
        ("list_keys", np.array([3, 0, 12, 15, 24], np.int32)),
        ("list_keys", np.array([0, 0, 12, 15, 24], np.int32)),
        ("list_keys", np.array([0, 3, 12, 15, 3 * DIM], np.int32)),
        ("list_keys", np.array([-1, 3, 12, 15, 24], np.int32)),
        ("list_keys", np.array([0, 3, 12, 15, 24], np.int64)),
        ("list_lens", np.array([3, 2, 1, 1, 1], np.uint8)),
        ("list_lens", np.array([100, -96, 1, 1, 1], np.int32)),
        ("list_lens", np.array([2.0, 2.0, 1.0, 1.0, 1.0], np.float32)),
        ("list_lens", np.array([2**64 - 1, 5, 1, 1, 1], np.uint64)),
        ("list_lens", np.array([2**32 - 1, 5, 1, 1, 1], np.uint32)),
        ("list_lens", np.array([2, 2, 1, 1], np.uint8)),
        ("doc_lens", np.array([2, 1, 1, 1, 0, 1, 0, 0], np.uint8)),
        ("doc_lens", np.array([90, -87, 1, 1, 0, 1, 0, 0, 1], np.int64)),
        ("doc_lens", np.array([2.0, 1.0, 1.0, 1, 0, 1, 0, 0, 1], np.float16)),
        ("bitmap_keys", np.array([1], np.int32)),
        ("bitmap_counts", np.array([1], np.uint8)),
        ("bitmaps", np.zeros(16, np.uint32)),
        ("rows", None),
        ("seqs", np.array([1, 1, 2], np.uint64)),
        ("seqs", np.array([3, 2, 1], np.uint64)),
        ("seqs", np.array([1, 2, 3], np.int64)),
        ("seqs", None),
        ("lengths", np.array([1, 2], np.uint8)),
        ("lengths", np.array([np.nan, 1, 2], np.float32)),
        ("lengths", np.array([-1, 1, 2], np.int32)),
    ],
)
def test_lists_that_point_outside_are_refused(tmp_path, name, value):
    with pytest.raises(IndexFormatError, match=r"[\\/]s:"):
        Segment.open(tampered(tmp_path, arrays={name: value}))


FREQUENT = [{1: 1, 2 + i % 2: 1} for i in range(2_100)]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bitmaps", lambda a: a | (np.uint32(1) << 31)),  # rows behind the last one
        ("bitmaps", lambda a: a[:-1]),
        ("bitmaps", lambda a: a.astype(np.int32)),
        ("bitmap_keys", lambda a: a[::-1].copy()),
        ("bitmap_keys", lambda a: np.array([1, 2, DIM], np.int32)),
        ("bitmap_keys", lambda a: a.astype(np.uint32)),
        ("bitmap_counts", lambda a: a * 2),
        ("bitmap_counts", lambda a: a.astype(np.float32)),
        ("bitmap_counts", lambda a: np.array([2_101, 1_049, 1_050], np.uint16)),
        ("list_keys", lambda a: np.array([1], np.int32)),
        ("bitmap_counts", None),
        ("bitmaps", None),
    ],
)
def test_bitmaps_that_point_outside_are_refused(tmp_path, name, change):
    path = tampered(tmp_path, FREQUENT, (1,))
    assert len(Segment.open(path).postings.bitmap_keys) == 3
    value = None if change is None else change(read_arrays(path)[0][name].copy())
    with pytest.raises(IndexFormatError, match=r"[\\/]s:"):
        Segment.open(tampered(tmp_path, FREQUENT, (1,), arrays={name: value}))


def test_numbers_that_are_not_aligned_are_copied(tmp_path, monkeypatch):
    """numba's compiled code would refuse them."""
    segment_of(FREQUENT).save(tmp_path / "s")
    arrays, meta = read_arrays(tmp_path / "s")

    def shifted(array):
        return np.frombuffer(b"x" + array.tobytes(), np.uint8)[1:].view(array.dtype)

    monkeypatch.setattr(
        segment_module, "read_arrays", lambda *_, **__: ({n: shifted(a) for n, a in arrays.items()}, meta)
    )
    opened = Segment.open(tmp_path / "s")
    check_equal(opened, segment_of(FREQUENT))
    assert opened.postings.rows.flags.aligned
    assert opened.postings.bitmaps.flags.aligned
    assert opened.doc_dims.flags.aligned


@pytest.mark.parametrize(
    "meta", [{"format": "sidr-segment-1"}, {"dim": "x"}, {"dim": "2"}, {"levels": ""}, {"levels": "1,2,4,8"}]
)
def test_a_segment_of_another_kind_is_refused(tmp_path, meta):
    with pytest.raises(IndexFormatError, match=r"[\\/]s:"):
        Segment.open(tampered(tmp_path, meta=meta))


# Which segments to merge


def run_adds(sizes):
    """Segment sizes after one add of each size, with the merges that follow, and the rows that merging has written."""
    segments, written, most = [], 0, 0
    for size in sizes:
        segments.append(size)
        while plan := plan_merge([(n, n) for n in segments]):
            start, end = plan
            assert 0 <= start < end <= len(segments)
            assert end - start > 1
            assert sum(segments[start:end]) <= MOST_ROWS
            written += sum(segments[start:end])
            segments[start:end] = [sum(segments[start:end])]
        most = max(most, len(segments))
    return segments, written, most


@pytest.mark.parametrize("size", [1, 10, 300, 3000])
def test_segments_stay_few_over_thousands_of_adds(size):
    segments, written, most = run_adds([size] * 4000)
    assert sum(segments) == 4000 * size
    levels = np.log(4000 * size) / np.log(8)
    assert most <= 8 * (min(levels, 4) + 1) + 2 * sum(segments) / MOST_ROWS
    assert written <= 4000 * size * (levels + 40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 5, 200, 257, 2100, 20_000]), max_size=400))
def test_segments_stay_few_whatever_the_sizes(sizes):
    segments, _, most = run_adds(sizes)
    assert sum(segments) == sum(sizes)
    assert most <= 7 * 6 + 1 + 2 * sum(sizes) / MOST_ROWS


def test_a_segment_of_which_most_is_deleted_is_rewritten_alone():
    assert plan_merge([(1000, 1000), (1000, 499), (1000, 1000)]) == (1, 2)
    assert plan_merge([(1000, 500)]) is None
    assert plan_merge([(1, 0)]) == (0, 1)
    assert plan_merge([]) is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 500, 70_000, 200_000, 262_144]), st.booleans()), max_size=12))
def test_compaction_ends_with_full_segments_and_no_deletions(parts):
    sizes = [(live + (1 if dirty or not live else 0), live) for live, dirty in parts]
    total = sum(live for _, live in sizes)
    for _ in range(3 * len(sizes) + 1):
        plan = plan_compaction(sizes)
        if plan is None:
            break
        merged = sum(live for _, live in sizes[slice(*plan)])
        assert merged <= MOST_ROWS
        sizes[slice(*plan)] = [(merged, merged)] if merged else []
    assert plan_compaction(sizes) is None
    assert all(rows == live for rows, live in sizes)
    assert sum(live for _, live in sizes) == total
    assert all(a + b > MOST_ROWS for (a, _), (b, _) in pairwise(sizes))
