import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.index import embedding_index
from sidr_rag.index.embedding_index import EmbeddingIndex, EmbeddingParts
from sidr_rag.search.searcher import SearchPool

DIM = 40


def vector(seq):
    rng = np.random.default_rng(seq)
    dims = np.sort(rng.choice(DIM, int(rng.integers(0, 9)), replace=False)).astype(np.int32)
    return dims, rng.random(len(dims)).astype(np.float16)


def vectors(seqs):
    return ((int(s), vector(int(s))) for s in seqs)


def by_hand(query, seqs, k):
    dims, weights = query
    scores = []
    for s in seqs:
        total = 0.0
        own = dict(zip(*(x.tolist() for x in vector(s)), strict=True))
        for d, w in zip(dims.tolist(), weights.tolist(), strict=True):
            total += w * float(np.float32(own.get(d, 0.0)))
        if total > 0:
            scores.append((-float(np.float32(total)), s))
    return [(s, -v) for v, s in sorted(scores)[:k]]


QUERY = (np.array([0, 3, 7, 8, 20, 33], np.int32), np.array([1, 0.5, 2, 1.5, 0.1, 1], np.float32))


@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 200), max_size=8)), max_size=12))
@settings(max_examples=40, deadline=None)
def test_after_any_history_it_finds_what_a_fresh_one_finds(history):
    parts, live, next_seq = EmbeddingParts(-1, DIM), [], 1
    for generation, (n_new, gone) in enumerate(history):
        live += range(next_seq, next_seq + n_new)
        next_seq += n_new
        live = [s for i, s in enumerate(live) if i not in gone]
        seqs = np.array(live, np.uint64)
        made = []
        parts = parts.changed(
            generation, seqs, lambda missing, made=made: made.extend(missing.tolist()) or vectors(missing)
        )
        assert made == sorted(set(made) & set(live)), "only what is new is asked for"
        assert parts.seqs.tolist() == live
        assert parts.lacking(seqs).tolist() == []
        for k in (1, 3, 100):
            got, scores = parts.search(QUERY, k)
            expected = by_hand(QUERY, live, k)
            assert got.tolist() == [s for s, _ in expected]
            assert scores.tolist() == [np.float32(v) for _, v in expected]


def test_small_parts_are_joined_and_the_dead_written_off():
    parts = EmbeddingParts(-1, DIM)
    asked = []

    def given_(missing):
        asked.extend(missing.tolist())
        return vectors(missing)

    for i in range(1, 200):
        parts = parts.changed(i, np.arange(1, i + 1, dtype=np.uint64), given_)
    assert len(parts.parts) < 10
    assert asked == list(range(1, 200)), "joining asks for no vector again"
    before = parts.nbytes
    parts = parts.changed(300, np.arange(1, 200, 5, dtype=np.uint64), given_)
    assert parts.nbytes < before / 2
    assert parts.changed(301, np.empty(0, np.uint64), given_).parts == ()


def test_parts_stay_small_enough_for_short_row_numbers(monkeypatch):
    monkeypatch.setattr(embedding_index, "_MOST_ROWS", 16)
    seqs = np.arange(1, 101, dtype=np.uint64)
    parts = EmbeddingParts(-1, DIM).changed(0, seqs, vectors)
    assert max(len(part.seqs) for part, _ in parts.parts) <= 16
    expected = by_hand(QUERY, range(1, 101), 10)
    for pool in (None, SearchPool(2)):
        got, _ = parts.search(QUERY, 10, pool=pool)
        assert got.tolist() == [s for s, _ in expected]


def test_only_allowed_passages_are_found():
    seqs = np.arange(1, 60, dtype=np.uint64)
    parts = EmbeddingParts(-1, DIM).changed(0, seqs[:30], vectors).changed(1, seqs[5:], vectors)
    allowed = np.array([2, 7, 20, 45, 58, 900], np.uint64)
    got, _ = parts.search(QUERY, 10, allowed)
    assert got.tolist() == [s for s, _ in by_hand(QUERY, [7, 20, 45, 58], 10)]
    assert parts.search(QUERY, 10, np.empty(0, np.uint64))[0].tolist() == []


def test_vectors_come_back_as_they_were_given():
    index = EmbeddingIndex.build(0, DIM, vectors(range(1, 30)))
    for (seq, (dims, weights)), expected in zip(index.vectors(), range(1, 30), strict=True):
        assert seq == expected
        assert dims.tolist() == vector(seq)[0].tolist()
        assert weights.tolist() == vector(seq)[1].astype(np.float32).tolist()


def test_dimensions_beyond_the_space_are_left_out():
    dims, weights = np.array([3, DIM, DIM + 5], np.int32), np.ones(3, np.float16)
    index = EmbeddingIndex.build(0, DIM, [(1, (dims, weights))])
    assert [v[0].tolist() for _, v in index.vectors()] == [[3]]


def test_bytes_of_a_posting():
    dims = np.arange(300, dtype=np.int32)
    index = EmbeddingIndex.build(0, 400, [(i, (dims, np.ones(300, np.float16))) for i in range(1000)])
    assert index.nbytes == pytest.approx(1000 * 300 * 6, rel=0.02)
