import sys

import numpy as np
import pytest
from stub_encoders import StubEncoder

from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError
from sidr_rag.rerank import Bm25, Fusion
from sidr_rag.rerank.fusion import first_stage_of
from sidr_rag.search.weighting import Weighting

WORDS = ["copper", "harbor", "ledger", "kettle", "stove", "winter", "garden", "river", "stone", "bridge"]
LEVELLED = Weighting((1, 2, 4), (1.0, 0.35, 0.25), 1.0, 0.5, 0.4, 0.15)


def corpus(n=60, seed=3):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(2, 14)))) for _ in range(n)]


def ids(results):
    return [r.passage.id for r in results]


@pytest.fixture
def sidr(make, tokenizer):
    made = make(encoder=StubEncoder(tokenizer, spread=3), weighting=LEVELLED)
    texts = corpus()
    made.add(texts, ids=[str(i) for i in range(len(texts))], metadatas=[{"n": i} for i in range(len(texts))])
    return made


def bm25_by_hand(texts, query, k1=0.9, b=0.4):
    """Lucene's form: idf ln(1 + (n - df + .5)/(df + .5)), no (k1 + 1)."""
    import Stemmer

    stem = Stemmer.Stemmer("english").stemWord
    words = [[stem(w) for w in t.split()] for t in texts]
    average = sum(map(len, words)) / len(words)
    scores = np.zeros(len(texts))
    for w in [stem(w) for w in query.split()]:
        df = sum(w in text for text in words)
        for i, text in enumerate(words):
            tf = text.count(w)
            norm = k1 * (1 - b + b * len(text) / average)
            scores[i] += np.log(1 + (len(words) - df + 0.5) / (df + 0.5)) * tf / (tf + norm)
    return scores


@pytest.mark.parametrize("settings", [Bm25(), Bm25(1.5, 0.75)])
def test_bm25_is_exact(sidr, settings):
    pytest.importorskip("bm25s")
    pytest.importorskip("Stemmer")
    for query in ("copper harbor", "rivers winter winter", "stove"):
        scores = bm25_by_hand(corpus(), query, settings.k1, settings.b)
        expected = [str(i) for i in np.lexsort((np.arange(len(scores)), -scores.astype(np.float32))) if scores[i] > 0]
        results = sidr.search(query, k=100, first_stage=settings)
        np.testing.assert_allclose([r.score for r in results], np.sort(scores)[::-1][: len(results)], rtol=1e-4)
        assert len(results) == len(expected)
        assert all(r.score == r.beta_score and not r.reranked for r in results)
    assert sidr.search("zebra", first_stage="bm25") == []
    assert sidr.search("", first_stage="bm25") == []
    assert sidr.search("the", first_stage="bm25") == []


def test_bm25_follows_every_change_and_holds_filters(sidr):
    pytest.importorskip("bm25s")
    sidr.add(["a new copper copper passage"], ids=["new"])
    assert ids(sidr.search("new", first_stage="bm25")) == ["new"]
    sidr.delete(["new", "3"])
    assert sidr.search("new", first_stage="bm25") == []
    every = sidr.search("copper harbor", k=100, first_stage="bm25")
    assert "3" not in ids(every)
    few = sidr.search("copper harbor", k=100, first_stage="bm25", filter={"n": {"gte": 30}})
    assert [(r.passage.id, r.score) for r in few] == [(r.passage.id, r.score) for r in every if int(r.passage.id) >= 30]
    assert (
        ids(sidr.search("copper", k=2, first_stage="bm25")) == ids(sidr.search("copper", k=50, first_stage="bm25"))[:2]
    )


def test_bm25_over_nothing(make):
    pytest.importorskip("bm25s")
    empty = make()
    assert empty.search("copper", first_stage="bm25") == []
    empty.add(["", "the of"])
    assert empty.search("copper", first_stage="bm25") == []
    assert empty.search("copper", first_stage="bm25", k=0) == []


def test_bm25_without_its_packages_names_the_extra(sidr, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtraError, match=r"sidr-rag\[bm25\]"):
        sidr.search("copper", first_stage="bm25")


def test_overlap_counts_distinct_shared_tokens(sidr):
    results = sidr.search("copper harbor copper ledger", k=100, first_stage="overlap")
    shared = {str(i): len({"copper", "harbor", "ledger"} & set(t.split())) for i, t in enumerate(corpus())}
    assert [r.score for r in results] == [float(shared[r.passage.id]) for r in results]
    assert len(results) == sum(n > 0 for n in shared.values())


def test_a_sum_of_reciprocal_ranks(sidr):
    pytest.importorskip("bm25s")
    lists = [ids(sidr.search("copper river", k=200, first_stage=s)) for s in ("sidr", "bm25", "overlap")]
    expected = {}
    for ranking in lists:
        for rank, i in enumerate(ranking, start=1):
            expected[i] = expected.get(i, 0.0) + 1 / (60 + rank)
    order = sorted(expected, key=lambda i: (-np.float32(expected[i]), int(i)))
    results = sidr.search("copper river", k=200, first_stage="sidr+bm25+overlap")
    assert ids(results) == order
    np.testing.assert_allclose([r.score for r in results], [expected[i] for i in order], rtol=1e-6)
    same = Fusion(("sidr", Bm25(), "overlap"))
    assert sidr.search("copper river", k=200, first_stage=same) == results
    assert ids(sidr.search("copper river", k=3, first_stage=same)) == order[:3]


def test_a_weighted_sum_of_scaled_scores(sidr):
    stages = ("lexical", "overlap")
    found = [{r.passage.id: r.score for r in sidr.search("copper river", k=200, first_stage=s)} for s in stages]
    expected = {}
    for scores, weight in zip(found, (2.0, 0.5), strict=True):
        low, high = min(scores.values()), max(scores.values())
        for i, score in scores.items():
            expected[i] = expected.get(i, 0.0) + weight * (score - low) / (high - low)
    results = sidr.search("copper river", k=200, first_stage=Fusion(stages, (2.0, 0.5), "weighted"))
    assert len(results) == len(expected)
    np.testing.assert_allclose([r.score for r in results], [expected[r.passage.id] for r in results], rtol=1e-5)
    assert [r.score for r in results] == sorted(expected.values(), reverse=True) or np.allclose(
        [r.score for r in results], sorted(expected.values(), reverse=True), rtol=1e-5
    )


def test_equal_scores_of_a_list_count_fully(make):
    sidr = make()
    sidr.add(["copper", "copper", "river"], ids=["a", "b", "c"])
    results = sidr.search("copper", first_stage=Fusion(("sidr", "overlap"), method="weighted"))
    assert [(r.passage.id, r.score) for r in results] == [("a", 2.0), ("b", 2.0)]


def test_fused_stages_hold_filters_k_and_rerank(sidr):
    pytest.importorskip("bm25s")
    results = sidr.search("copper river", k=4, rerank=6, first_stage="sidr+bm25", filter={"n": {"lt": 40}})
    assert len(results) == 4
    assert all(r.reranked and r.passage.metadata["n"] < 40 for r in results)
    assert sidr.search("zebra", first_stage="sidr+lexical") == []


@pytest.mark.parametrize("first_stage", ["lexical", "overlap", "bm25"])
def test_stages_without_an_encoder_encode_nothing(sidr, first_stage):
    pytest.importorskip("bm25s")
    with sidr.measured() as costs:
        sidr.search("copper river", first_stage=first_stage)
    assert (costs.queries, costs.passages) == (0, 0)


@pytest.mark.parametrize(
    ("make_stage", "word"),
    [
        (lambda: first_stage_of("tfidf"), "tfidf"),
        (lambda: first_stage_of("sidr+tfidf"), "tfidf"),
        (lambda: first_stage_of(5), "int"),
        (lambda: first_stage_of("sidr+sidr"), "different"),
        (lambda: Fusion(("sidr",)), "two or more"),
        (lambda: Fusion("sidr"), "str"),
        (lambda: Fusion(("sidr", "x")), "'x'"),
        (lambda: Fusion(("sidr", "bm25"), (1.0,)), "weights"),
        (lambda: Fusion(("sidr", "bm25"), (1.0, -1.0)), "weights"),
        (lambda: Fusion(("sidr", "bm25"), method="max"), "method"),
        (lambda: Fusion(("sidr", "bm25"), constant=-1.0), "constant"),
        (lambda: Fusion(("sidr", "bm25"), depth=0), "depth"),
        (lambda: Bm25(k1=-1), "k1"),
        (lambda: Bm25(b=2), "b=2"),
        (lambda: Bm25(k1="x"), "k1"),
    ],
)
def test_what_cannot_be_a_stage_is_refused_by_name(make_stage, word):
    with pytest.raises((InvalidInputError, InvalidTypeError), match=word):
        make_stage()


def test_names_stand_for_stages():
    assert first_stage_of("bm25") == Bm25()
    assert first_stage_of("sidr") == "sidr"
    assert first_stage_of("sidr+lexical") == Fusion(("sidr", "lexical"))
    assert first_stage_of(Bm25(2.0, 0.1)) == Bm25(2.0, 0.1)
