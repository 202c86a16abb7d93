import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sidr_rag.encoder.sparsify import bag_row, sparse_row, top_dims
from sidr_rag.errors import InvalidInputError


def row(logits, own=(), **changes):
    options = {
        "activation": "elu1p",
        "representation": "theta",
        "sparsification": "union",
        "max_active_dims": 2,
        **changes,
    }
    return sparse_row(np.array(logits, dtype=np.float32), np.array(own, dtype=np.int32), **options)


@given(
    hnp.arrays(np.float32, st.integers(1, 40), elements=st.integers(-3, 3).map(float)),
    st.integers(0, 50),
)
def test_top_dims_equals_a_stable_sort(values, k):
    expected = np.sort(np.argsort(-values, kind="stable")[:k])
    np.testing.assert_array_equal(top_dims(values, k), expected)


def test_ties_at_the_kth_value_go_to_the_lower_dimension():
    np.testing.assert_array_equal(top_dims(np.array([1, 5, 1, 1, 1], dtype=np.float32), 3), [0, 1, 2])


LOGITS = [3.0, -1.0, 2.0, 0.5, -2.0]


@pytest.mark.parametrize(
    ("changes", "dims"),
    [
        ({}, [0, 2, 4]),
        ({"sparsification": "topk"}, [0, 2]),
        ({"sparsification": "own"}, [2, 4]),
        ({"representation": "lex"}, [2, 4]),
        ({"representation": "lex", "sparsification": "topk"}, [2, 4]),
        ({"representation": "bin"}, [0, 2, 4]),
        ({"representation": "bot"}, [2, 4]),
        ({"max_active_dims": 99}, [0, 1, 2, 3, 4]),
    ],
)
def test_active_dimensions(changes, dims):
    got, weights = row(LOGITS, own=[2, 4], **changes)
    np.testing.assert_array_equal(got, dims)
    assert got.dtype == np.int32
    if changes.get("representation") in ("bin", "bot"):
        np.testing.assert_array_equal(weights, np.ones(len(dims)))
    else:
        activated = [x + 1 if x >= 0 else np.exp(x) for x in LOGITS]
        np.testing.assert_allclose(weights, [activated[d] for d in dims], rtol=1e-6)


def test_weights_of_zero_are_left_out():
    dims, weights = row(LOGITS, own=[1, 3], activation="log1p_relu", max_active_dims=4)
    np.testing.assert_array_equal(dims, [0, 2, 3])
    np.testing.assert_allclose(weights, np.log1p([3.0, 2.0, 0.5]), rtol=1e-6)


def test_logits_that_are_not_finite_are_an_error():
    with pytest.raises(InvalidInputError, match="not all finite"):
        row([1.0, float("nan")])


def test_bag_row_needs_no_logits():
    dims, weights = bag_row(np.array([1, 7], dtype=np.int32))
    np.testing.assert_array_equal(dims, [1, 7])
    np.testing.assert_array_equal(weights, [1, 1])
