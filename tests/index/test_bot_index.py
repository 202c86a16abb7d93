import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.index.merge import merge_segments
from sidr_rag.types import TokenCounts

DIM = 9


def counts_of(documents):
    dims = [t for d in documents for t in sorted(d)]
    return TokenCounts(
        np.cumsum([0, *(len(d) for d in documents)]).astype(np.int64),
        np.array(dims, np.uint16),
        np.array([d[t] for d in documents for t in sorted(d)], np.uint32),
        np.array([sum(d.values()) for d in documents], np.uint32),
        DIM,
    )


def view_of(name, documents, first):
    seqs = np.arange(first, first + len(documents), dtype=np.uint64)
    return SegmentView(name, build_segment(counts_of(documents), seqs, (1, 2)))


def check(index, living):
    assert index.n_live == len(living)
    assert index.total_length == sum(sum(d.values()) for d in living.values())
    assert index.df.tolist() == [sum(t in d for d in living.values()) for t in range(DIM)]
    assert index.live_seqs().tolist() == sorted(living)


documents = st.lists(st.dictionaries(st.integers(0, DIM - 1), st.integers(1, 3), max_size=4), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(documents, st.sets(st.integers(1, 30), max_size=6), st.booleans()), max_size=7))
def test_statistics_are_those_of_a_fresh_index_after_any_history(history):
    index, living, n, generation = BotIndex.of(DIM, ()), {}, 1, 0
    for added, deleted, merge in history:
        generation += 1
        view = view_of(f"v{generation}", added, n)
        living.update(enumerate(added, start=n))
        n += len(added)
        gone = np.array(sorted(deleted), dtype=np.uint64)
        living = {seq: d for seq, d in living.items() if seq not in deleted}
        index = index.changed(add=[view], delete=gone, generation=generation, next_seq=n)
        check(index, living)
        if merge and len(index.views) > 1:
            old = index.views[:2]
            joined = SegmentView(f"m{generation}", merge_segments([(v.segment, v.live) for v in old]))
            index = index.replaced(0, 2, joined if joined.n_live else None, generation + 1)
            generation += 1
            check(index, living)
    recounted = BotIndex.of(DIM, index.views)
    check(recounted, living)
    fresh = BotIndex.of(DIM, [view_of("f", [living[s] for s in sorted(living)], 1)] if living else [])
    assert (recounted.df == fresh.df).all()
    assert (recounted.n_live, recounted.total_length) == (fresh.n_live, fresh.total_length)
    factors_of(index, fresh)


def factors_of(index, fresh):
    """Equal lengths have equal factors, bit for bit, wherever the passage stands."""
    here = {}
    for state in (index, fresh):
        for view in state.views:
            factors = state.length_factors(view, 0.5, 0.4)
            if factors is None:
                continue
            live = np.ones(view.segment.n_rows, bool) if view.live is None else view.live
            for length, factor in zip(view.segment.lengths[live], factors[live], strict=True):
                assert here.setdefault(int(length), factor) == factor


def test_changing_a_state_leaves_the_old_one_as_it_was():
    first = BotIndex.of(DIM, ()).changed(
        add=[view_of("a", [{0: 1}, {1: 2}], 1)], delete=np.empty(0, np.uint64), generation=1, next_seq=3
    )
    second = first.changed(add=[], delete=np.array([1], np.uint64), generation=2, next_seq=3)
    check(first, {1: {0: 1}, 2: {1: 2}})
    check(second, {2: {1: 2}})


def test_deleting_what_is_gone_or_unknown_changes_nothing():
    index = BotIndex.of(DIM, [view_of("a", [{0: 1}, {1: 2}], 1)])
    for _ in range(2):
        index = index.changed(add=[], delete=np.array([1, 50], np.uint64), generation=1, next_seq=3)
        check(index, {2: {1: 2}})


@pytest.mark.filterwarnings("error")
def test_a_passage_without_tokens_has_a_finite_factor():
    index = BotIndex.of(DIM, [view_of("a", [{}, {1: 2}], 1)])
    factors = index.length_factors(index.views[0], 0.5, 1.0)
    assert np.isfinite(factors).all()
    assert factors[1] == np.power(2.0, -0.5)


@pytest.mark.filterwarnings("error")
def test_no_factor_where_none_is_asked_for_or_nothing_has_a_length():
    empty = BotIndex.of(DIM, [view_of("a", [{}, {}], 1)])
    assert empty.length_factors(empty.views[0], 0.5, 0.4) is None
    full = BotIndex.of(DIM, [view_of("a", [{1: 1}], 1)])
    assert full.length_factors(full.views[0], 0.0, 0.4) is None


def test_live_rows_of_a_view():
    view = view_of("a", [{0: 1}] * 4, 10).without(np.array([2]))
    assert view.live_rows(np.array([9, 10, 12, 13], np.uint64)).tolist() == [0, 3]
    assert view.n_live == 3
    assert view.live.tolist() == [True, True, False, True]
