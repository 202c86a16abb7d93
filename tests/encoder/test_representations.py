"""Representations made from V_theta and bags, against the encoder's own and by hand."""

import numpy as np
import pytest

from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.representations import binarized, lexical, represented
from sidr_rag.errors import InvalidInputError
from sidr_rag.types import SparseVectors

THETA = SparseVectors.from_rows([([0, 3, 5], [0.5, 2.0, 1.0]), ([], []), ([1, 5], [0.25, 3.0])], 8)
BAGS = SparseVectors.from_rows([([3, 7], [1, 1]), ([2], [1]), ([1, 5], [1, 1])], 8)


def rows(vectors):
    vectors.validate()
    return [(dims.tolist(), weights.tolist()) for dims, weights in vectors]


def test_by_hand():
    assert rows(lexical(THETA, BAGS)) == [([3], [2.0]), ([], []), ([1, 5], [0.25, 3.0])]
    assert rows(binarized(THETA)) == [([0, 3, 5], [1, 1, 1]), ([], []), ([1, 5], [1, 1])]
    assert represented("theta", THETA, BAGS) is THETA
    assert represented("bot", THETA, BAGS) is BAGS
    assert rows(represented("lex", THETA, BAGS)) == rows(lexical(THETA, BAGS))
    assert rows(represented("bin", THETA, BAGS)) == rows(binarized(THETA))


def test_a_weight_of_zero_is_not_active():
    assert rows(binarized(SparseVectors.from_rows([([1, 2], [0.0, 2.0])], 4))) == [([2], [1])]


def test_no_rows():
    empty = SparseVectors.from_rows([], 8)
    assert [len(represented(r, empty, empty)) for r in ("theta", "lex", "bin", "bot")] == [0] * 4


def test_they_equal_the_encoder_s_own():
    encoder = load_encoder()
    texts = ["Which metal carries a current?", "", "the heart pumps blood " * 40]
    theta = encoder.encode_passages(texts)
    bags = encoder.encode_passages(texts, representation="bot")
    for name in ("lex", "bin", "bot"):
        own = encoder.encode_passages(texts, representation=name)
        made = represented(name, theta, bags)
        np.testing.assert_array_equal(made.indptr, own.indptr)
        np.testing.assert_array_equal(made.dims, own.dims)
        np.testing.assert_array_equal(made.weights, own.weights)


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(InvalidInputError, match="representation='dense'"):
        represented("dense", THETA, BAGS)
    with pytest.raises(InvalidInputError, match="theta has 3 rows of 8 dimensions and bags 2 of 8"):
        lexical(THETA, SparseVectors.from_rows([([], []), ([], [])], 8))
