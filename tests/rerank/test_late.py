import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_encoders import StubEncoder, TinyTokenizer

from sidr_rag.rerank.cache import EmbeddingCache
from sidr_rag.rerank.late import PassageEmbedder, blend_scores
from sidr_rag.types import SparseVectors

values = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=8)


@given(values, st.floats(0, 1))
def test_a_blend_is_a_mean_of_z_scores(first, share):
    first = np.array(first, np.float32)
    second = np.arange(len(first), dtype=np.float64)[::-1] * 3 + 1
    got = blend_scores(first, second, share)
    if share == 0:
        assert got is second
        return

    def z(x):
        x = x.astype(np.float64)
        return (x - x.mean()) / x.std() if x.max() > x.min() else np.zeros(len(x))

    np.testing.assert_allclose(got, share * z(first) + (1 - share) * z(second), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("error")
def test_a_blend_of_one_or_of_equals_is_zero_not_nan():
    assert blend_scores(np.array([3.0], np.float32), np.array([5.0]), 0.7).tolist() == [0.0]
    assert blend_scores(np.ones(3, np.float32), np.ones(3), 0.7).tolist() == [0.0, 0.0, 0.0]
    assert blend_scores(np.full(3, 0.1, np.float32), np.full(3, 0.1), 0.7).tolist() == [0.0, 0.0, 0.0]
    assert blend_scores(np.empty(0, np.float32), np.empty(0), 0.7).tolist() == []


def embedder(path=None, **arguments):
    encoder = StubEncoder(TinyTokenizer(), spread=3)
    return PassageEmbedder(encoder, EmbeddingCache(path, encoder.fingerprint, **arguments)), encoder


def test_a_text_is_encoded_once_and_equal_texts_together():
    made, encoder = embedder()
    first = made.vectors(["a b", "c", "a b"])
    assert sorted(encoder.encoded) == ["a b", "c"]
    second = made.vectors(["c", "a b"])
    assert len(encoder.encoded) == 2
    for got, expected in zip(second, [first[1], first[0]], strict=True):
        assert got[0].tolist() == expected[0].tolist()
        assert got[1].view(np.uint16).tolist() == expected[1].view(np.uint16).tolist()
    assert made.vectors([]) == []


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_the_cache_never_changes_a_score(kept):
    made, encoder = embedder(max_bytes=kept)
    texts = ["a b c", "c d", "", "e"]
    [query] = encoder.encode_queries(["a c e"])
    once = made.scores(query, texts)
    again = made.scores(query, texts)
    assert once.tobytes() == again.tobytes()
    for text, score in zip(texts, once, strict=True):
        assert made.scores(query, [text])[0] == score


def test_weights_are_rounded_to_half_precision_and_never_infinite():
    made, encoder = embedder()
    encoder.encode_passages = lambda texts: SparseVectors.from_rows([([1, 2], [70_000.0, 0.1])] * len(texts), 26)
    [(dims, weights)] = made.vectors(["a"])
    assert dims.tolist() == [1, 2]
    assert weights.dtype == np.float16
    assert weights.tolist() == [65_504.0, float(np.float16(0.1))]


def test_many_texts_are_encoded_in_blocks():
    made, encoder = embedder()
    sizes = []
    encode = encoder.encode_passages
    encoder.encode_passages = lambda texts: sizes.append(len(texts)) or encode(texts)
    made.vectors([f"{a} {b}" for a in "abcdefghijklmnopqrstuvwxyz" for b in "abcdefghijklmnopqrstuvwxyz"])
    assert sizes == [256, 256, 164]
