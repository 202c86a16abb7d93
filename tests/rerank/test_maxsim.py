import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sidr_rag import SiDR
from sidr_rag.encoder import load_encoder
from sidr_rag.rerank import Blend
from sidr_rag.rerank.codecs import SignVectors
from sidr_rag.rerank.maxsim import maxsim, signs_of, unit_rows

TEXTS = [f"a{i} a{i + 1} a{(i * 7) % 30} a5" for i in range(12)]


def by_hand(query, passage):
    """The module's formula, number by number."""
    total = 0.0
    for t in query.astype(np.float64):
        unit = t / np.linalg.norm(t)
        total += max(sum(x if s >= 0 else -x for x, s in zip(unit, u, strict=True)) for u in passage)
    return total / len(query) / np.sqrt(query.shape[1])


vectors = st.integers(1, 5).flatmap(lambda n: arrays(np.float32, (n, 13), elements=st.floats(0.125, 4, width=32)))


@given(query=vectors, passage=vectors, flips=st.integers(0, 2**13 - 1))
def test_it_is_the_formula(query, passage, flips):
    signs = np.where([flips >> i & 1 for i in range(13)], -1, 1).astype(np.float32)
    query, passage = query * signs, passage * np.roll(signs, 3)
    assert maxsim(unit_rows(query), signs_of(passage)) == pytest.approx(by_hand(query, passage), abs=1e-6)


def test_bits_are_kept_as_they_are():
    rng = np.random.default_rng(0)
    for width, n in ((384, 7), (13, 1)):
        bits = signs_of(rng.normal(size=(n, width)).astype(np.float32))
        first, second = SignVectors().encode(bits)
        np.testing.assert_array_equal(SignVectors().decode(first, second), bits)
        assert len(second) == n * -(-width // 8)
    for damaged in ((first, second + b"x"), (b"\0\0", second), (b"", second)):
        with pytest.raises(ValueError, match=r"tokens|buffer|reshape"):
            SignVectors().decode(*damaged)


def test_states_of_tokens_end_to_end(tiny_folder, backend):
    encoder = load_encoder(tiny_folder(f"states-{backend}", 8), backend=backend, device="cpu")
    long = " ".join(f"a{i}" for i in range(40))
    states = encoder.encode_tokens(["a1 a2 a3", "", long])
    assert [s.shape for s in states] == [(5, 16), (2, 16), (64, 16)], "two windows of 30 tokens with two special ones"
    alone = encoder.encode_tokens([long])[0]
    np.testing.assert_allclose(states[2], alone, rtol=1e-4, atol=1e-5)
    first = encoder.encode_tokens([" ".join(f"a{i}" for i in range(30))])[0]
    np.testing.assert_allclose(alone[:32], first, rtol=1e-4, atol=1e-5)
    assert encoder.encode_tokens([]) == []


def test_a_search_re_ranks_by_it_and_keeps_the_signs(tiny_folder, tmp_path, backend):
    folder = tiny_folder(f"tokens-{backend}", 9)
    with SiDR.from_texts(TEXTS, path=tmp_path / "s", model=folder, backend=backend, device="cpu") as sidr:
        with sidr.measured() as costs:
            results = sidr.search("a5 a6", k=8, rerank=8, reranker="maxsim")
        assert (costs.passages, costs.cache_hits) == (8, 0)
        query = sidr.encoder.encode_tokens(["a5 a6"], "query")[0]
        for r in results:
            assert r.reranked
            states = sidr.encoder.encode_tokens([r.passage.content])[0]
            assert r.score == pytest.approx(by_hand(query, states), abs=1e-5)
        scores = [r.score for r in results]
        assert scores == sorted(scores, reverse=True)
        blended = sidr.search("a5 a6", k=8, rerank=8, reranker=Blend("maxsim", 0.5))
        assert blended != results
        theta = sidr.search("a5 a6", k=8, rerank=8, reranker="theta")
    with SiDR.open(tmp_path / "s", model=folder, backend=backend, device="cpu") as again:
        with again.measured() as costs:
            assert again.search("a5 a6", k=8, rerank=8, reranker="maxsim") == results
            assert again.search("a5 a6", k=8, rerank=8, reranker=Blend("maxsim", 0.5)) == blended
            assert again.search("a5 a6", k=8, rerank=8, reranker="theta") == theta, (
                "each kind is kept beside the others"
            )
        assert costs.passages == 0


def test_texts_without_a_token_are_scored_by_their_special_ones(tiny_folder):
    with SiDR.from_texts(["a1 a2", "a1"], model=tiny_folder("few", 3), backend="numpy") as sidr:
        found = sidr.search(["", "a1"], k=2, rerank=2, reranker="maxsim")
        assert found[0] == []
        assert len(found[1]) == 2
        embedder = sidr.encoder.encode_tokens(["", "a1"])
        assert all(np.isfinite(maxsim(unit_rows(q), signs_of(p))) for q in embedder for p in embedder)
