"""Reciprocal rank fusion against its formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidr_rag import InvalidInputError, InvalidTypeError
from sidr_rag.fusion import reciprocal_rank_fusion

RANKINGS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), max_size=4)


def test_by_hand():
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["c", "a"]], weights=[1, 2], constant=60)
    assert fused == [("c", 1 / 63 + 2 / 61), ("a", 1 / 61 + 2 / 62), ("b", 1 / 62)]


@given(RANKINGS, st.integers(0, 100))
def test_formula_and_order(rankings, constant):
    fused = reciprocal_rank_fusion(rankings, constant=constant)
    expected = {}
    for ranking in rankings:
        for rank, key in enumerate(dict.fromkeys(ranking), start=1):
            expected[key] = expected.get(key, 0.0) + 1 / (constant + rank)
    assert dict(fused) == pytest.approx(expected)
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True)


@given(st.lists(st.sampled_from("abcdef"), unique=True))
def test_one_ranking_keeps_its_order(ranking):
    assert [key for key, _ in reciprocal_rank_fusion([ranking])] == ranking


def test_ties_go_to_the_better_rank_then_to_the_earlier_ranking():
    assert [key for key, _ in reciprocal_rank_fusion([["a", "b"], ["c", "d"]])] == ["a", "c", "b", "d"]
    assert [key for key, _ in reciprocal_rank_fusion([["a", "b"], ["b", "a"]])] == ["a", "b"]


def test_a_weight_of_zero_still_lists():
    assert reciprocal_rank_fusion([["a"], ["b"]], weights=[0, 1]) == [("b", 1 / 61), ("a", 0.0)]
    assert reciprocal_rank_fusion([]) == []


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"weights": [1]}, InvalidInputError, "weights has 1 items for 2 rankings"),
        ({"weights": [1, -1]}, InvalidInputError, r"weights\[1\]=-1"),
        ({"weights": [1, float("nan")]}, InvalidInputError, r"weights\[1\]=nan"),
        ({"weights": [1, "2"]}, InvalidTypeError, r"weights\[1\]='2'"),
        ({"constant": -1}, InvalidInputError, "constant=-1"),
        ({"constant": None}, InvalidTypeError, "constant=None"),
    ],
)
def test_bad_arguments_are_named(arguments, error, named):
    with pytest.raises(error, match=named):
        reciprocal_rank_fusion([["a"], ["b"]], **arguments)
