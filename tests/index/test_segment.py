from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.errors import IndexFormatError
from sidr_rag.index import builder
from sidr_rag.index.arrays import read_arrays, write_arrays
from sidr_rag.index.builder import build_segment
from sidr_rag.index.merge import MOST_ROWS, merge_segments, plan_compaction, plan_merge
from sidr_rag.index.segment import Segment
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
        found, starts, ends = level.postings_of(np.arange(dim, dtype=np.int32))
        assert {int(t): level.rows[a:b].tolist() for t, a, b in zip(found, starts, ends, strict=True)} == {
            t: rows for t, rows in postings.items() if rows
        }


def check_equal(a, b):
    assert a.dim == b.dim
    np.testing.assert_array_equal(a.seqs, b.seqs)
    np.testing.assert_array_equal(a.lengths, b.lengths)
    assert len(a.levels) == len(b.levels)
    for x, y in zip(a.levels, b.levels, strict=True):
        for name in ("threshold", "doc_indptr", "doc_dims", "term_dims", "term_indptr", "rows"):
            left, right = getattr(x, name), getattr(y, name)
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert getattr(left, "dtype", None) == getattr(right, "dtype", None), name


@given(bags)
def test_a_segment_says_what_the_texts_say(documents):
    check_against(segment_of(documents), documents, range(1, len(documents) + 1))


@given(bags, st.integers(1, 7))
def test_postings_are_equal_however_the_entries_are_chunked(documents, entries):
    whole = segment_of(documents)
    before = builder._CHUNK_ENTRIES
    builder._CHUNK_ENTRIES = entries
    try:
        check_equal(segment_of(documents), whole)
    finally:
        builder._CHUNK_ENTRIES = before


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


def test_row_and_dimension_types_follow_their_range():
    wide = segment_of([{70_000: 1}, {3: 2}], dim=80_000)
    assert wide.levels[0].doc_dims.dtype == np.int32
    many = segment_of([{0: 1}] * 65_536)
    more = segment_of([{0: 1}] * 65_537)
    assert many.levels[0].rows.dtype == np.uint16
    assert more.levels[0].rows.dtype == np.uint32
    assert many.levels[0].rows[-1] == 65_535
    assert more.levels[0].rows[-1] == 65_536


def test_rows_of_finds_only_what_is_here():
    segment = build_segment(counts_of([{0: 1}] * 3), np.array([2, 5, 9], np.uint64), (1,))
    assert segment.rows_of(np.array([1, 2, 9, 10], np.uint64)).tolist() == [0, 2]
    assert segment.rows_of(np.empty(0, np.uint64)).tolist() == []


# Hostile files: their checksums are right, their contents are not.


def tampered(tmp_path, documents=({0: 1, 3: 2}, {3: 1}, {0: 4}), **changes):
    path = tmp_path / "s"
    segment_of(list(documents)).save(path)
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
        ("0.rows", np.array([0, 2, 0, 9], np.uint16)),
        ("0.rows", np.array([0, 2, 0], np.uint16)),
        ("0.rows", np.array([0, 2, 0, 1], np.int32)),
        ("0.rows", np.array([0, 2, 0, 1], np.float32)),
        ("0.doc_dims", np.array([0, 3, 3, DIM], np.uint16)),
        ("0.doc_dims", np.array([0, 3, 3, -1], np.int32)),
        ("0.doc_dims", np.array([0, 3, 3, 0], np.float32)),
        ("0.term_dims", np.array([3, 0], np.uint16)),
        ("0.term_dims", np.array([0, 0], np.uint16)),
        ("0.term_dims", np.array([0, 3], np.int64)),
        ("0.term_lens", np.array([3, 2], np.uint8)),
        ("0.term_lens", np.array([100, -96], np.int32)),
        ("0.term_lens", np.array([2.0, 2.0], np.float32)),
        ("0.term_lens", np.array([2**64 - 1, 5], np.uint64)),
        ("0.doc_lens", np.array([2, 1], np.uint8)),
        ("0.doc_lens", np.array([90, -87, 1], np.int64)),
        ("0.doc_lens", np.array([2.0, 1.0, 1.0], np.float16)),
        ("1.rows", None),
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


@pytest.mark.parametrize(
    "meta", [{"format": "sidr-segment-2"}, {"dim": "x"}, {"dim": "2"}, {"levels": ""}, {"levels": "1,2,4,8"}]
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
