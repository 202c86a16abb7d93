import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sidr_rag import SiDR
from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.windows import TokenVectors
from sidr_rag.rerank import Blend
from sidr_rag.rerank.codecs import SignVectors
from sidr_rag.rerank.maxsim import TokenEmbedder, maxsim, signs_of, unit_rows

TEXTS = [f"a{i} a{i + 1} a{(i * 7) % 30} a5" for i in range(12)]


def by_hand(query, counts, passage):
    """The module's formula, number by number."""
    total = 0.0
    for t, count in zip(query.astype(np.float64), counts, strict=True):
        unit = t / np.linalg.norm(t)
        total += count * max(sum(x if s >= 0 else -x for x, s in zip(unit, u, strict=True)) for u in passage)
    return total / sum(counts) / np.sqrt(query.shape[1])


vectors = st.integers(1, 5).flatmap(lambda n: arrays(np.float32, (n, 13), elements=st.floats(0.125, 4, width=32)))


@given(query=vectors, passage=vectors, flips=st.integers(0, 2**13 - 1), seed=st.integers(0, 9))
def test_it_is_the_formula(query, passage, flips, seed):
    signs = np.where([flips >> i & 1 for i in range(13)], -1, 1).astype(np.float32)
    query, passage = query * signs, passage * np.roll(signs, 3)
    counts = np.random.default_rng(seed).random(len(query)) + 0.1
    (found,) = maxsim(unit_rows(query), counts / counts.sum(), [signs_of(passage)])
    assert found == pytest.approx(by_hand(query, counts, passage), abs=1e-6)


@pytest.mark.parametrize("width", [384, 13])
def test_a_passage_has_the_same_score_whatever_stands_beside_it(width):
    rng = np.random.default_rng(1)
    query = unit_rows(rng.normal(size=(6, width)).astype(np.float32))
    shares = np.full(6, 1 / 6)
    passages = [signs_of(rng.normal(size=(n, width)).astype(np.float32)) for n in (90, 1, 0, 300, 7)]
    together = maxsim(query, shares, passages)
    assert together.tolist() == [float(maxsim(query, shares, [bits])[0]) for bits in passages]
    assert (together != 0).tolist() == [True, True, False, True, True]
    assert maxsim(query, shares, []).shape == (0,)
    assert maxsim(query[:0], shares[:0], passages).tolist() == [0] * 5


def test_bits_are_kept_as_they_are():
    rng = np.random.default_rng(0)
    for width, n in ((384, 7), (13, 1), (384, 0)):
        bits = signs_of(rng.normal(size=(n, width)).astype(np.float32))
        first, second = SignVectors().encode(bits)
        np.testing.assert_array_equal(SignVectors().decode(first, second), bits)
        assert len(second) == n * -(-width // 8)
    for damaged in ((first, second + b"x"), (b"\0\0", second), (b"", second)):
        with pytest.raises(ValueError, match=r"tokens|buffer|reshape"):
            SignVectors().decode(*damaged)


def test_vectors_of_tokens_come_window_after_window(tiny_folder, backend):
    encoder = load_encoder(tiny_folder(f"states-{backend}", 8), backend=backend, device="cpu")
    long = " ".join(f"a{i}" for i in range(40))
    found = encoder.encode_tokens(["a1 a2 a3", "", long])
    assert [v.shape for _, v in found] == [(3, 16), (0, 16), (60, 16)], "two windows of 30 tokens for the long one"
    dim_of = {encoder.tokenizer.vocabulary.token(int(d)): int(d) for d in encoder.own_dims([long])[0]}
    words = [f"a{i}" for i in (*range(30), *range(10, 40))]
    assert found[2].dims.tolist() == [dim_of[word] for word in words]
    alone = encoder.encode_tokens([long])[0].vectors
    np.testing.assert_allclose(found[2].vectors, alone, rtol=1e-4, atol=1e-5)
    first = encoder.encode_tokens([" ".join(f"a{i}" for i in range(30))])[0].vectors
    np.testing.assert_allclose(alone[:30], first, rtol=1e-4, atol=1e-5)
    assert encoder.encode_tokens([]) == []


def test_a_search_re_ranks_by_it_and_keeps_the_signs(tiny_folder, tmp_path, backend):
    folder = tiny_folder(f"tokens-{backend}", 9)
    with SiDR.from_texts(TEXTS, path=tmp_path / "s", model=folder, backend=backend, device="cpu") as sidr:
        with sidr.measured() as costs:
            results = sidr.search("a5 a6", k=8, rerank=8, reranker="maxsim")
        assert (costs.passages, costs.cache_hits) == (8, 0)
        query = sidr.encoder.encode_tokens(["a5 a6"], "query")[0].vectors
        n = len(TEXTS)
        counts = [idf_by_hand(n, sum(word in text.split() for text in TEXTS)) for word in ("a5", "a6")]
        assert counts[0] < 0.1 < 1 < counts[1]
        for r in results:
            assert r.reranked
            vectors = sidr.encoder.encode_tokens([r.passage.content])[0].vectors
            assert r.score == pytest.approx(by_hand(query, counts, vectors), abs=1e-5)
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


def idf_by_hand(n, df):
    return np.log(1 + (n - df + 0.5) / (df + 0.5))


def test_what_has_no_tokens_scores_nothing():
    space = SimpleSpace()
    embedder = TokenEmbedder(
        lambda texts: [TokenVectors(np.zeros(len(t), np.int32), np.ones((len(t), 8), np.float32)) for t in texts],
        space,
        8,
    )
    query = np.ones((2, 8), np.float32)
    assert embedder.scores(query, np.ones(2), ["", "ab"]).tolist() == [0.0, pytest.approx(1.0)]
    assert embedder.scores(query[:0], np.ones(0), ["ab"]).tolist() == [0.0]
    assert embedder.scores(query, np.zeros(2), ["ab"]).tolist() == [pytest.approx(1.0)], "none counts: all alike"


class SimpleSpace:
    def get(self, keys):
        return {}

    def put(self, pairs):
        return dict(pairs)


def test_a_query_without_words_finds_nothing_and_breaks_nothing(tiny_folder):
    with SiDR.from_texts(["a1 a2", "a1"], model=tiny_folder("few", 3), backend="numpy") as sidr:
        found = sidr.search(["", "a1"], k=2, rerank=2, reranker="maxsim")
        assert [len(results) for results in found] == [0, 2]
