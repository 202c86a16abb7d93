import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidr_rag.errors import InvalidInputError
from sidr_rag.rerank.codecs import ByteVectors, ByteWeights, HalfVectors, HalfWeights, weight_codec

weights = st.lists(st.floats(0, 65_000, width=32), max_size=20)
numbers = st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=20)


def dims_for(n, large):
    return (np.arange(n) * (7000 if large else 3)).astype(np.int32)


@pytest.mark.parametrize("codec", [HalfWeights(), ByteWeights()], ids=lambda c: c.name)
@pytest.mark.parametrize("large", [False, True])
@given(given_weights=weights)
def test_sparse_vectors_come_back_within_the_stated_error(codec, large, given_weights):
    vector = dims_for(len(given_weights), large), np.array(given_weights, np.float32)
    dims, values = codec.decode(*codec.encode(vector))
    assert dims.dtype == np.int32
    assert dims.tolist() == vector[0].tolist()
    errors = np.abs(values.astype(np.float64) - vector[1].astype(np.float64))
    if codec.name == "float16":
        assert (errors <= vector[1] * 2.0**-11 + 1e-7).all()
    else:
        assert (errors <= vector[1].max(initial=0) / 255 / 2 * 1.001 + 1e-30).all()
        assert (errors <= 0.002 * vector[1].max(initial=0) + 1e-30).all()
    # What was rounded once is not rounded again.
    again = codec.decode(*codec.encode((dims, values)))
    np.testing.assert_allclose(again[1], values, rtol=1e-6)


@pytest.mark.parametrize("codec", [ByteVectors(), HalfVectors()], ids=lambda c: c.name)
@given(values=numbers)
def test_dense_vectors_come_back_within_the_stated_error(codec, values):
    vector = np.array(values, np.float32)
    got = codec.decode(*codec.encode(vector))
    assert got.dtype == np.float32
    greatest = np.abs(vector).max()
    bound = greatest / 127 / 2 * 1.001 if codec.name == "int8" else np.abs(vector) * 2.0**-11 + 1e-7
    assert (np.abs(got - vector) <= bound + 1e-30).all()
    assert codec.name == "float16" or (np.abs(got - vector) <= 0.004 * greatest + 1e-30).all()


def test_bytes_of_a_passage():
    vector = np.arange(300, dtype=np.int32), np.ones(300, np.float32)
    assert sum(map(len, HalfWeights().encode(vector))) == 300 * 4
    assert sum(map(len, ByteWeights().encode(vector))) == 300 * 3 + 4
    assert sum(map(len, ByteVectors().encode(np.ones(384, np.float32)))) == 384 + 4


def test_cosines_of_bytes_are_close():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    codec = ByteVectors()
    rounded = np.stack([codec.decode(*codec.encode(v)) for v in vectors])
    assert np.abs(vectors @ vectors.T - rounded @ vectors.T).max() < 0.003


@pytest.mark.parametrize("codec", [HalfWeights(), ByteWeights()], ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"\1\0\2\0", b"\0"),
        (b"\1", b"\0\0\0\0"),
        (b"\2\0\1\0", np.ones(2, np.float16).tobytes()),
        (b"\1\0\1\0", np.ones(2, np.float32).tobytes()[:4] + b"\1\1"),
        (np.array([-1, 5], np.int32).tobytes(), np.ones(2, np.float16).tobytes()),
        (b"\1\0", np.array([np.nan], np.float16).tobytes()),
        (b"\1\0", np.array([np.nan], np.float32).tobytes() + b"\1"),
        (b"\1\0", np.array([np.inf], np.float16).tobytes()),
        (b"\1\0", np.array([np.inf], np.float32).tobytes() + b"\1"),
        (b"\1\0", np.array([-1], np.float16).tobytes()),
    ],
)
def test_bytes_that_are_no_vector_are_refused(codec, first, second):
    with pytest.raises(ValueError):  # noqa: PT011 -- numpy's own words
        codec.decode(first, second)


def test_precisions_by_name():
    assert weight_codec("float16").name == "float16"
    assert weight_codec("uint8").name == "uint8"
    with pytest.raises(InvalidInputError, match="embedding_precision='int4'"):
        weight_codec("int4")
