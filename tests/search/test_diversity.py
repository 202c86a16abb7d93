"""Maximal marginal relevance against a definition by sets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag import InvalidInputError, InvalidTypeError, SparseVectors
from sidr_rag.search.diversity import maximal_marginal_relevance

DIM = 8
BAGS = st.lists(st.sets(st.integers(0, DIM - 1)), max_size=7)


def vectors(bags):
    return SparseVectors.from_rows([(sorted(bag), [1.0] * len(bag)) for bag in bags], DIM)


def likeness(a, b):
    return len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0


@settings(max_examples=200)
@given(BAGS, st.integers(0, 9), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.randoms(use_true_random=False))
def test_equals_the_definition(bags, k, weight, random):
    relevance = np.array([random.choice([0.0, 0.25, 0.5, 1.0]) for _ in bags])
    got = maximal_marginal_relevance(relevance, vectors(bags), k, weight)
    assert len(got) == len(set(got)) == min(k, len(bags))
    for i, position in enumerate(got):
        before = [bags[j] for j in got[:i]]

        def value(p, before=before):
            return weight * relevance[p] - (1 - weight) * max((likeness(bags[p], b) for b in before), default=0.0)

        # Values may tie up to rounding: what counts is that every choice is as good as any.
        assert value(position) == pytest.approx(max(value(p) for p in range(len(bags)) if p not in got[:i]), abs=1e-12)


def test_relevance_alone_keeps_the_order_and_a_copy_comes_late():
    bags = vectors([{0, 1}, {0, 1}, {2, 3}])
    relevance = np.array([1.0, 0.9, 0.5])
    assert maximal_marginal_relevance(relevance, bags, 3, 1.0) == [0, 1, 2]
    assert maximal_marginal_relevance(relevance, bags, 3, 0.5) == [0, 2, 1]
    assert maximal_marginal_relevance(relevance, bags, 1, 0.5) == [0]


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((np.ones(2), -1, 0.5), InvalidInputError, "k=-1"),
        ((np.ones(2), 1, 1.5), InvalidInputError, "relevance_weight=1.5"),
        ((np.ones(2), 1, "x"), InvalidTypeError, "relevance_weight='x'"),
        ((np.ones(3), 1, 0.5), InvalidInputError, "relevance of shape"),
        ((np.array([1, np.nan]), 1, 0.5), InvalidInputError, "finite"),
    ],
)
def test_bad_arguments_are_named(arguments, error, named):
    relevance, k, weight = arguments
    with pytest.raises(error, match=named):
        maximal_marginal_relevance(relevance, vectors([{0}, {1}]), k, weight)
