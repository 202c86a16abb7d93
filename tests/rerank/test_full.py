import threading

import numpy as np
import pytest
from stub_encoders import StubEncoder

from sidr_rag import SiDR
from sidr_rag.rerank import full
from sidr_rag.search.weighting import BINARY, Weighting, weigh_queries

WORDS = [f"{a}{b}" for a in ("copper", "river", "winter") for b in ("", " harbor", " stone")]


def ids(results):
    return [r.passage.id for r in results]


def texts(n):
    return [f"{WORDS[i % len(WORDS)]} {WORDS[(i * 5) % len(WORDS)]}" for i in range(n)]


@pytest.fixture
def encoder(tokenizer):
    return StubEncoder(tokenizer, spread=3)


@pytest.fixture
def sidr(make, encoder):
    made = make(encoder=encoder)
    made.add(texts(60), ids=[f"t{i}" for i in range(60)])
    return made


def test_auto_is_beta_and_late_before_and_full_search_afterwards(sidr, encoder):
    late = sidr.search("copper harbor", search="auto")
    assert late == sidr.search("copper harbor", rerank=20)
    assert any(r.reranked for r in late)
    assert sidr.search("copper", search="auto", rerank=3, k=5) == sidr.search("copper", rerank=3, k=5)
    assert sidr.embed() == 60
    assert sidr.search("copper harbor", search="auto") == sidr.search("copper harbor", search="full")
    assert sidr.search("copper harbor", search="auto", rerank=7) == sidr.search("copper harbor", search="full")


def test_with_a_dense_head_auto_re_ranks_more_once_all_is_embedded():
    with SiDR.from_texts(texts(150), ids=[f"t{i}" for i in range(150)]) as sidr:
        assert sidr.search("copper harbor", search="auto", k=30) == sidr.search("copper harbor", rerank=20, k=30)
        sidr.embed()
        embedded = sidr.costs().passages
        found = sidr.search("copper harbor", search="auto", k=30)
        assert found == sidr.search("copper harbor", rerank=100, reranker="both", k=30)
        assert found != sidr.search("copper harbor", rerank=20, reranker="both", k=30)
        assert all(r.reranked for r in found)
        few = sidr.search("copper", search="auto", rerank=3, k=5)
        assert few == sidr.search("copper", rerank=3, reranker="both", k=5)
        chosen = sidr.search("copper", search="auto", reranker="theta", k=5)
        assert chosen == sidr.search("copper", rerank=100, reranker="theta", k=5)
        assert sidr.costs().passages == embedded


@pytest.mark.parametrize("search", ["full", "alpha", "late"])
def test_the_weighting_decides_the_querys_weights_and_binary_leaves_them(make, encoder, search):
    """<w(q), V_theta(p)> with w of the scoring contract; with the binary weighting <V_theta(q), V_theta(p)>."""
    words = texts(12)
    levelled = Weighting((1, 2), (1.0, 0.4), 1.0, 0.5, 0.4, 0.6, 0.2)
    question = "copper harbor copper"
    passages = encoder.encode_passages(words).toarray().astype(np.float16).astype(np.float64)
    for weighting in (levelled, BINARY):
        sidr = make(encoder=encoder, weighting=weighting)
        sidr.add(words, ids=[str(i) for i in range(12)])
        own = encoder.encode_queries([question], representation="bot")
        theta = own if search == "alpha" else encoder.encode_queries([question])
        df = (encoder.encode_passages(words, representation="bot").toarray() > 0).sum(0)
        weights = theta if weighting == BINARY else weigh_queries(theta, own, weighting, df, 12)
        arguments = {"rerank": 12, "reranker": "theta"} if search == "late" else {"search": search}
        found = sidr.search(question, k=12, **arguments)
        assert found
        for r in found:
            expected = float(weights.toarray()[0].astype(np.float64) @ passages[int(r.passage.id)])
            assert r.score == pytest.approx(expected, rel=1e-6)


def test_auto_over_an_embedded_store_finds_what_shares_no_token_with_the_question():
    question, answer = "When do I get my money back?", "Refunds are paid within thirty days."
    others = [f"The {a} of the {b} is {c}." for a in ("colour", "weight") for b in ("door", "roof") for c in ("7", "9")]
    more = [f"Parcel {i} goes by sea." for i in range(40)]
    with SiDR.from_texts([answer, *others, *more], ids=[f"t{i}" for i in range(49)]) as sidr:
        assert "t0" not in ids(sidr.search(question, k=49, search="auto")), "nothing is embedded yet"
        sidr.embed()
        beta = ids(sidr.search(question, k=49))
        assert "t0" not in beta
        found = sidr.search(question, k=5, search="auto")
        assert "t0" in ids(found)
        assert len(found) == 5
        assert next(r for r in found if r.passage.id == "t0").beta_score == 0.0
        assert [r.score for r in found] == sorted((r.score for r in found), reverse=True)
        everything = ids(sidr.search(question, k=49, search="auto"))
        assert len(set(everything)) == len(everything) > len(beta)
        assert set(beta) <= set(everything)
        assert ids(sidr.search(question, k=0, search="auto")) == []
        assert "t0" not in ids(sidr.search(question, k=5, search="auto", min_score=0.1)), "beta's score of it is 0"
        assert ids(sidr.search(question, k=5, search="auto", filter={"kind": "none"})) == []
        assert [ids(r) for r in sidr.search([question, question], k=5, search="auto")] == [ids(found)] * 2


def test_a_small_store_is_embedded_by_its_first_search(make, encoder):
    sidr = make(encoder=encoder)
    sidr.add(texts(full.FEW_MISSING))
    assert sidr.search("copper harbor", search="auto") == sidr.search("copper harbor", search="full")


def test_a_passage_added_to_an_embedded_store_is_ranked_in_one_list(sidr, encoder):
    sidr.embed()
    encoder.encoded.clear()
    sidr.add(["copper harbor copper harbor"], ids=["new"])
    results = sidr.search("copper harbor", k=40, search="auto")
    assert "new" in ids(results)
    assert encoder.encoded == ["copper harbor copper harbor"]
    assert results == sidr.search("copper harbor", k=40, search="full")
    assert all(not r.reranked and r.beta_score is None for r in results)
    scores = [r.score for r in results]
    assert scores == sorted(scores, reverse=True)


def test_with_many_new_passages_all_are_searched_by_beta_and_late_again(sidr, encoder):
    sidr.embed()
    many = [f"copper {w}" for w in texts(full.FEW_MISSING + 1)]
    sidr.add(many, ids=[f"n{i}" for i in range(len(many))])
    encoder.encoded.clear()
    results = sidr.search("copper harbor", k=99, search="auto")
    assert results == sidr.search("copper harbor", k=99, rerank=20)
    assert len(encoder.encoded) <= 20
    sidr.delete(["n0"])
    assert sidr.search("copper", k=9, search="auto") == sidr.search("copper", k=9, search="full"), "few lack it now"


def test_auto_holds_filters_and_empty_stores(sidr, make):
    for _ in range(2):
        found = sidr.search("copper", search="auto", filter={"n": 1})
        assert found == []
        sidr.embed()
    empty = make()
    assert empty.search("copper", search="auto") == []
    assert empty.embed() == 0
    assert empty.search("", search="auto") == []


def test_what_is_embedded_is_known_after_a_restart(make, tokenizer, tmp_path):
    first = make(tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3))
    first.add(texts(50), ids=[f"t{i}" for i in range(50)])
    first.embed()
    expected = first.search("copper harbor", search="full")
    first.close()
    encoder = StubEncoder(tokenizer, spread=3)
    again = make(tmp_path / "s", encoder=encoder)
    assert again.search("copper harbor", search="auto") == expected
    assert encoder.encoded == []
    assert again.embed() == 50
    assert encoder.encoded == []
    again.close()
    other = StubEncoder(tokenizer, spread=4, fingerprint="stub-2")
    changed = make(tmp_path / "s", encoder=other)
    assert any(r.reranked for r in changed.search("copper harbor", search="auto")), "another encoder: late again"
    assert len(changed) == 50
    assert 0 < len(other.encoded) < 50


def test_a_mark_without_the_embeddings_is_not_believed(make, tokenizer, tmp_path):
    encoder = StubEncoder(tokenizer, spread=3)
    sidr = make(tmp_path / "s", encoder=encoder)
    sidr.add(texts(60))
    sidr._pipeline.embedder.cache.mark_embedded(10_000)
    assert any(r.reranked for r in sidr.search("copper harbor", search="auto"))
    assert len(encoder.encoded) < 60


def test_a_cache_that_is_too_small_never_claims_to_hold_everything(make, tokenizer, tmp_path):
    sidr = make(tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3), cache_bytes=1000)
    distinct = [f"{a} {b}" for a in WORDS for b in WORDS if a < b]
    sidr.add(distinct)
    assert sidr.embed() == len(distinct)
    expected = sidr.search("copper", search="full")
    assert sidr._pipeline.embedder.cache.embedded_until == 0
    assert sidr.search("copper", search="auto") == expected, "the index in memory has them all"
    sidr.close()
    again = make(tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3), cache_bytes=1000)
    assert any(r.reranked for r in again.search("copper harbor", search="auto"))
    assert again.search("copper", search="full") == expected


def test_another_precision_embeds_anew_and_stays_close(make, tokenizer, tmp_path):
    half = make(tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3))
    half.add(texts(20))
    a = {r.passage.id: r.score for r in half.search("copper harbor", k=20, search="full")}
    n_half = half.info()["cache_bytes"]
    half.close()
    encoder = StubEncoder(tokenizer, spread=3)
    byte = make(tmp_path / "s", encoder=encoder, embedding_precision="uint8")
    b = {r.passage.id: r.score for r in byte.search("copper harbor", k=20, search="full")}
    assert encoder.encoded != []
    assert a.keys() == b.keys()
    for i, score in a.items():
        assert b[i] == pytest.approx(score, rel=0.01)
    assert byte.info()["cache_bytes"] < n_half
    late = byte.search("copper harbor", k=20, rerank=20, reranker="theta")
    assert {r.passage.id: np.float32(r.score) for r in late} == {
        i: np.float32(b[i]) for i in (r.passage.id for r in late)
    }


def test_the_memory_of_the_parametric_index_is_stated(sidr):
    assert sidr.info()["embedding_bytes"] == 0
    sidr.search("copper", search="full")
    stated = sidr.info()["embedding_bytes"]
    parts = [part for part, _ in sidr._pipeline.full._kept[0].parts]
    assert stated == sum(
        p.rows.nbytes + p.weights.nbytes + p.seqs.nbytes + p.term_dims.nbytes + p.term_indptr.nbytes for p in parts
    )


def test_an_overwritten_store_gives_no_old_vectors_to_new_passages(make, tokenizer, tmp_path):
    from stub_encoders import stub_sidr

    from sidr_rag.index.snapshot import write_snapshot

    reader_encoder = StubEncoder(tokenizer, spread=3)
    writer = make(tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3))
    writer.add(["copper harbor", "river stone"], ids=["a", "b"])
    writer.close()
    reader = make(tmp_path / "s", encoder=reader_encoder, read_only=True)
    assert ids(reader.search("copper", search="full", k=1)) == ["a"]
    source = stub_sidr(tokenizer, encoder=StubEncoder(tokenizer, spread=3), weighting=BINARY)
    source.add(["river winter", "copper copper"], ids=["x", "y"])
    write_snapshot(source._store, tmp_path / "s", overwrite=True)
    expected = source.search("copper", search="full")
    assert [(r.passage.id, r.score) for r in reader.search("copper", search="full")] == [
        (r.passage.id, r.score) for r in expected
    ]


def test_auto_does_not_wait_for_a_full_search_that_embeds_everything(make, tokenizer):
    entered, gate = threading.Event(), threading.Event()

    class Slow(StubEncoder):
        def encode_passages(self, texts, *, representation="theta", max_active_dims=None):
            if representation != "bot" and len(texts) > 40:
                entered.set()
                assert gate.wait(60)
            return super().encode_passages(texts, representation=representation, max_active_dims=max_active_dims)

    sidr = make(encoder=Slow(tokenizer, spread=3))
    sidr.add([f"{a} {b}" for a in WORDS for b in WORDS if a != b])
    worker = threading.Thread(target=lambda: sidr.search("copper", search="full"))
    worker.start()
    assert entered.wait(60)
    assert any(r.reranked for r in sidr.search("copper harbor", search="auto"))
    gate.set()
    worker.join(60)
    assert sidr.search("copper", search="auto") == sidr.search("copper", search="full")
