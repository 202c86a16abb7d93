from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.errors import InvalidInputError
from sidr_rag.search import merge_hits


def make_part(pairs):
    return np.array([p[0] for p in pairs], np.uint64), np.array([p[1] for p in pairs], np.float32)


def test_order_is_score_descending_then_seq_ascending():
    parts = [make_part([(9, 2.0), (4, 1.0)]), make_part([(3, 2.0), (11, 3.0)]), make_part([])]
    seqs, scores = merge_hits(parts, 4)
    assert seqs.tolist() == [11, 3, 9, 4]
    assert scores.tolist() == [3.0, 2.0, 2.0, 1.0]
    assert seqs.dtype == np.uint64
    assert scores.dtype == np.float32


@pytest.mark.parametrize("parts", [[], [make_part([])], [make_part([]), make_part([])]])
def test_nothing_merges_to_nothing(parts):
    seqs, scores = merge_hits(parts, 5)
    assert (seqs.tolist(), scores.tolist()) == ([], [])
    assert (seqs.dtype, scores.dtype) == (np.dtype(np.uint64), np.dtype(np.float32))


def test_k_of_zero_and_beyond():
    part = make_part([(1, 1.0), (2, 0.5)])
    assert len(merge_hits([part], 0)[0]) == 0
    assert merge_hits([part], 99)[0].tolist() == [1, 2]


def test_seqs_beyond_float64_precision_keep_their_value_and_order():
    high = 2**64 - 2
    seqs, _ = merge_hits([make_part([(high + 1, 1.0)]), make_part([(high, 1.0)])], 2)
    assert seqs.tolist() == [high, high + 1]


def test_zero_scores_are_hits():
    seqs, scores = merge_hits([make_part([(5, 0.0)]), make_part([(1, 0.0)])], 2)
    assert (seqs.tolist(), scores.tolist()) == ([1, 5], [0.0, 0.0])


def test_bad_arguments_are_named():
    with pytest.raises(InvalidInputError, match="k must be at least 0, got -1"):
        merge_hits([], -1)
    with pytest.raises(InvalidInputError, match=r"parts\[1\] has 1 seqs but 0 scores"):
        merge_hits([make_part([]), (np.zeros(1, np.uint64), np.zeros(0, np.float32))], 1)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]), max_size=6), max_size=5),
    st.integers(0, 12),
    st.randoms(use_true_random=False),
)
def test_merging_equals_sorting_everything(score_lists, k, random):
    total = sum(map(len, score_lists))
    seqs = random.sample(range(1000), total)
    pairs, parts, at = [], [], 0
    for score_list in score_lists:
        part = list(zip(seqs[at : at + len(score_list)], score_list, strict=True))
        at += len(score_list)
        pairs += part
        parts.append(make_part(part))
    merged = merge_hits(parts, k)
    expected = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:k]
    assert list(zip(merged[0].tolist(), merged[1].tolist(), strict=True)) == expected
