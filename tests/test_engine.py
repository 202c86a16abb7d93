import inspect
import math
import os
import pickle
import re
import shutil
import time
import warnings

import numpy as np
import pytest
from stub_encoders import StubEncoder, stub_sidr

import sidr_rag
from sidr_rag import SiDR
from sidr_rag.errors import (
    IndexFormatError,
    InvalidInputError,
    InvalidTypeError,
    ReadOnlyError,
    SidrError,
    StoreLockedError,
)
from sidr_rag.search.weighting import BINARY, Weighting, weigh_queries
from sidr_rag.types import Passage, SearchResult, SparseVectors

TEXTS = [
    "the copper harbor ledger",
    "a copper kettle on the stove",
    "winter garden and river stone",
    "the river bridge in winter",
    "falcon over the harbor",
]
WEIGHTINGS = [BINARY, Weighting((1, 2, 4), (1.0, 0.35, 0.25), 1.0, 0.5, 0.4, 0.15)]


def ids(results):
    return [r.passage.id for r in results]


def filled(make, path=None, **arguments):
    sidr = make(path, **arguments)
    sidr.add(TEXTS, ids=[f"t{i}" for i in range(len(TEXTS))], metadatas=[{"n": i} for i in range(len(TEXTS))])
    return sidr


@pytest.fixture(params=["memory", "folder"])
def sidr(request, make, tmp_path):
    return filled(make, tmp_path / "store" if request.param == "folder" else None)


# The default model, once from end to end


@pytest.fixture(scope="module")
def default():
    made = SiDR.from_texts(TEXTS, ids=[f"t{i}" for i in range(len(TEXTS))], dtype="float32", num_threads=1)
    yield made
    made.close()


def test_the_default_model_answers(default):
    [first, *_] = default.search("bird of prey above the port", k=3, rerank=3)
    assert first.passage.id == "t4"
    assert first.reranked
    assert default.search("copper kettle", k=1)[0].passage.id == "t1"


def test_search_ways_of_the_default_model(default):
    for search in ("beta", "full", "alpha"):
        results = default.search("copper kettle", k=2, search=search)
        assert results[0].passage.id == "t1"
        assert [r.rank for r in results] == [1, 2]
    for representation in ("theta", "lex", "bin", "bot"):
        assert default.search("copper kettle", query_repr=representation)[0].passage.id == "t1"
    assert default.search("copper kettle", first_stage="lexical")[0].passage.id == "t1"
    assert ids(default.search("", search="full")) == ids(default.search("", rerank=3)) == []


def test_full_search_of_the_default_model_is_the_dense_product(default):
    passages = default.encode_passages(TEXTS)
    dense = passages.toarray().astype(np.float16).astype(np.float64)
    df = np.bincount(default.bags(TEXTS).dims, minlength=passages.dim)
    theta, own = default.encode_queries(["river in winter"]), default.bags(["river in winter"])
    weighting = Weighting.from_mapping(default.encoder.config.weighting)
    query = weigh_queries(theta, own, weighting, df, len(TEXTS)).toarray()[0]
    expected = dense @ query.astype(np.float64)
    results = default.search("river in winter", k=5, search="full")
    assert ids(results) == [f"t{i}" for i in np.argsort(-expected, kind="stable")]
    np.testing.assert_allclose([r.score for r in results], np.sort(expected)[::-1], rtol=1e-6)
    late = default.search("river in winter", k=5, rerank=5, reranker="theta")
    assert [(r.passage.id, np.float32(r.score)) for r in late] == [
        (r.passage.id, np.float32(r.score)) for r in results if r.passage.id in ids(late)
    ]


def test_explanations_of_the_default_model_add_up(default):
    for query in ("copper kettle", "a bird above water", "winter"):
        for result in default.search(query, k=5):
            explained = default.explain(query, result.passage.id)
            assert np.float32(explained.score) == np.float32(result.score)
            assert math.fsum(p.contribution for p in explained.parts) == pytest.approx(explained.score, rel=1e-6)
            assert [p.contribution for p in explained.parts] == sorted(
                (p.contribution for p in explained.parts), reverse=True
            )


# Making, opening, saving


def test_the_api_is_the_one_that_adapters_rely_on():
    def names(call):
        return list(inspect.signature(call).parameters)

    assert names(SiDR.from_texts)[:9] == [
        "texts",
        "ids",
        "metadatas",
        "titles",
        "path",
        "overwrite",
        "model",
        "device",
        "weighting",
    ]
    assert names(SiDR.open)[:5] == ["path", "create", "read_only", "model", "device"]
    assert names(SiDR.add)[:6] == ["self", "texts", "ids", "metadatas", "titles", "on_conflict"]
    assert names(SiDR.search) == [
        "self",
        "query",
        "k",
        "search",
        "rerank",
        "filter",
        "min_score",
        "first_stage",
        "reranker",
        "query_repr",
        "max_active_dims",
        "weight_floor",
    ]
    assert names(SiDR.search_vectors) == ["self", "vectors", "k", "filter"]
    assert "SiDR" in sidr_rag.__all__


def test_from_texts_in_a_folder(tmp_path):
    with SiDR.from_texts(["copper"], ids=["x"], path=tmp_path / "s") as first:
        assert ids(first.search("copper")) == ["x"]
        assert first.path == tmp_path / "s"
    with pytest.raises(IndexFormatError, match="overwrite"):
        SiDR.from_texts(["river"], ids=["y"], path=tmp_path / "s")
    with SiDR.open(str(tmp_path / "s")) as kept:
        assert kept.ids() == ["x"]
    with SiDR.from_texts(["river"], ids=["y"], path=tmp_path / "s", overwrite=True) as second:
        assert second.ids() == ["y"]
    with SiDR.open(tmp_path / "s", read_only=True) as third:
        assert ids(third.search("river")) == ["y"]
        assert ids(third.search("copper")) == []


def test_a_failed_from_texts_makes_no_store_and_keeps_the_old(tmp_path):
    for _ in range(2):
        with pytest.raises(InvalidTypeError, match=r"texts\[1\]"):
            SiDR.from_texts(["copper", 5], path=tmp_path / "s")
        assert not (tmp_path / "s").exists()
    SiDR.from_texts(["copper"], ids=["x"], path=tmp_path / "s").close()
    with pytest.raises(InvalidTypeError):
        SiDR.from_texts(["river", None], path=tmp_path / "s", overwrite=True)
    with SiDR.open(tmp_path / "s") as kept:
        assert kept.ids() == ["x"]


def test_open_makes_a_store_only_when_asked(tmp_path):
    with pytest.raises(IndexFormatError, match="create=True"):
        SiDR.open(tmp_path / "s")
    with pytest.raises(IndexFormatError):
        SiDR.open(tmp_path / "s", create=True, read_only=True)
    assert not (tmp_path / "s").exists()
    with SiDR.open(tmp_path / "s", create=True) as made:
        assert len(made) == 0
        assert made.search("copper") == []
        made.add(["copper"], ids=["x"])
    with SiDR.open(tmp_path / "s", create=True) as again:
        assert again.ids() == ["x"]


def test_a_store_remembers_its_weighting(tmp_path):
    own = Weighting((1, 3), (1.0, 0.5), length_exponent=0.2, length_slope=0.5)
    for name, choice, levels in (("b", "binary", [1]), ("o", own, [1, 2, 3, 4]), ("d", "default", [1, 2, 4])):
        with SiDR.from_texts(["copper"], path=tmp_path / name, weighting=choice) as made:
            expected = made.info()["weighting"]
            assert made.info()["levels"] == levels
        with SiDR.open(tmp_path / name) as again:
            assert again.info()["weighting"] == expected
    with pytest.raises(InvalidInputError, match="levels"):
        SiDR.open(tmp_path / "b", weighting="default")
    with SiDR.open(tmp_path / "d", weighting="binary") as fewer:
        assert fewer.search("copper")[0].score > 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"colour": 1}, "colour"),
        ({"num_threads": 0}, "num_threads"),
        ({"num_threads": "2"}, "num_threads"),
        ({"kernel": "gpu"}, "kernel"),
        ({"cache_bytes": -1}, "cache_bytes"),
        ({"weighting": "bm25"}, "weighting"),
    ],
)
def test_unknown_options_are_refused_by_name(options, word):
    with pytest.raises((InvalidInputError, InvalidTypeError), match=word):
        SiDR.from_texts(["a"], **options)


def test_saving_and_opening_changes_nothing(sidr, make, tmp_path):
    sidr.delete(["t2"])
    sidr.add(["copper again"], ids=["t0"], titles=["ledger"], metadatas=[{"deep": {"er": [1, None, True]}}])
    sidr.save(tmp_path / "copy")
    copy = make(tmp_path / "copy")
    assert copy.ids() == sidr.ids()
    assert copy.get(sidr.ids()) == sidr.get(sidr.ids())
    for query in ("copper", "harbor winter", "ledger", "nothing"):
        assert copy.search(query) == sidr.search(query)
    sidr.save(tmp_path / "copy")


def test_a_store_in_a_folder_is_saved_already(make, tmp_path):
    sidr = filled(make, tmp_path / "s")
    sidr.save(tmp_path / "s")
    sidr.save(str(tmp_path / "x" / ".." / "s"))
    assert sidr.ids() == [f"t{i}" for i in range(5)]


def test_a_context_manager_closes(tmp_path, tokenizer):
    with stub_sidr(tokenizer, tmp_path / "s") as sidr:
        sidr.add(["copper"])
    for call in (lambda: sidr.search("copper"), lambda: sidr.add(["x"]), lambda: len(sidr), sidr.ids):
        with pytest.raises(SidrError, match="closed"):
            call()
    with pytest.raises(InvalidTypeError), stub_sidr(tokenizer, tmp_path / "s") as again:
        again.add([*again.add(["river"]), 5])
    with stub_sidr(tokenizer, tmp_path / "s") as third:
        assert len(third) == 2


def test_info_and_repr(sidr):
    info = sidr.info()
    assert info["passages"] == 5
    assert info["levels"] == [1, 2, 4]
    assert info["model"] == "stub"
    assert info["index_bytes"] > 0
    assert "5 passages" in repr(sidr)
    assert not any(text in repr(sidr) for text in TEXTS)


# Adding, deleting, getting


def test_add_returns_ids_in_order_and_makes_those_that_are_missing(sidr):
    given = sidr.add(["one", "two", "three"], ids=["a", None, "c"])
    assert given[0] == "a"
    assert given[2] == "c"
    assert len(given[1]) >= 16
    assert sidr.ids()[-3:] == given
    assert len(set(sidr.add(["x", "x"]))) == 2


def test_add_reads_any_iterable_once(sidr):
    def once(items):
        yield from items

    sidr.add(once(["one", "two"]), ids=once(["a", "b"]), metadatas=once([{"x": 1}, None]), titles=once([None, "T"]))
    assert sidr.get(["b", "a"]) == [Passage("b", "two", "T"), Passage("a", "one", None, {"x": 1})]


def test_titles_are_searched_and_kept_apart(sidr):
    sidr.add(["text"], ids=["a"], titles=["zebra"])
    assert ids(sidr.search("zebra")) == ["a"]
    assert sidr.get(["a"])[0].title == "zebra"
    assert sidr.get(["a"])[0].content == "zebra text"


def test_passages_can_be_moved_between_stores(sidr, make):
    other = make()
    assert other.add_passages(sidr.get(sidr.ids())) == sidr.ids()
    assert other.get(sidr.ids()) == sidr.get(sidr.ids())
    with pytest.raises(InvalidTypeError, match=r"passages\[0\]"):
        other.add_passages(["text"])
    with pytest.raises(InvalidInputError, match="'merge'"):
        other.add_passages([], on_conflict="merge")


def test_on_conflict(sidr):
    with pytest.raises(InvalidInputError, match="'t1'"):
        sidr.add(["new", "other"], ids=["u", "t1"], on_conflict="error")
    assert "u" not in sidr
    sidr.add(["new", "other"], ids=["u", "t1"], on_conflict="skip")
    assert "u" in sidr
    assert sidr.get(["t1"])[0].text == TEXTS[1]
    with pytest.raises(InvalidInputError, match="'merge'"):
        sidr.add(["x"], on_conflict="merge")


def test_get_keeps_the_order_asked_for_and_leaves_out_what_is_missing(sidr):
    assert [p.id for p in sidr.get(["t3", "nobody", "t0", "t3"])] == ["t3", "t0", "t3"]
    assert sidr.get([]) == []


def test_membership_and_truth(sidr, make):
    assert "t1" in sidr
    assert "nobody" not in sidr
    assert 5 not in sidr
    empty = make()
    assert len(empty) == 0
    assert bool(empty)


def test_delete_counts_what_existed(sidr):
    assert sidr.delete(["t0", "nobody", "t0", "t4"]) == 2
    assert sidr.delete([]) == 0
    assert ids(sidr.search("copper harbor")) == ["t1"]


def test_compacting_with_purge_leaves_nothing_on_disk(make, tmp_path, tokenizer):
    sidr = filled(make, tmp_path / "s", encoder=StubEncoder(tokenizer, spread=2))
    sidr.add(["xylophone secretum " * 20], ids=["gone"])
    sidr.search("secretum copper", rerank=10)
    sidr.delete(["gone"])
    sidr.compact(purge=True)
    for file in (tmp_path / "s").rglob("*"):
        if file.is_file():
            assert b"secretum" not in file.read_bytes(), file.name
    assert len(sidr._pipeline.embedder.cache) == 2
    assert ids(sidr.search("copper")) == ["t0", "t1"]


# Searching


def test_results_carry_passage_score_and_rank(sidr):
    results = sidr.search("copper harbor")
    assert [(r.passage.id, r.score, r.rank, r.beta_score, r.reranked) for r in results] == [
        ("t0", 2.0, 1, 2.0, False),
        ("t1", 1.0, 2, 1.0, False),
        ("t4", 1.0, 3, 1.0, False),
    ]
    assert isinstance(results[0], SearchResult)
    assert results[0].passage == sidr.get(["t0"])[0]


def test_a_list_of_queries_gives_a_list_for_each(sidr):
    queries = ["copper", "zebra", "winter", "", "copper"]
    assert sidr.search(queries) == [sidr.search(q) for q in queries]
    assert sidr.search([]) == []
    assert sidr.search(tuple(queries)) == sidr.search(queries)


@pytest.mark.parametrize("arguments", [{}, {"rerank": 3}, {"search": "full"}, {"search": "alpha"}])
@pytest.mark.parametrize("k", [0, 1, 2, 100])
def test_k_in_every_way_of_searching(make, tokenizer, arguments, k):
    sidr = filled(make, encoder=StubEncoder(tokenizer, spread=2))
    every = sidr.search("copper harbor winter", k=50, **arguments)
    assert sidr.search("copper harbor winter", k=k, **arguments) == every[:k]
    assert [r.rank for r in every] == list(range(1, len(every) + 1))


def test_min_score_leaves_out_lower_first_stage_scores(sidr):
    assert ids(sidr.search("copper harbor", min_score=2)) == ["t0"]
    assert ids(sidr.search("copper harbor", min_score=1.5)) == ["t0"]
    assert ids(sidr.search("copper harbor", min_score=1)) == ["t0", "t1", "t4"]
    assert ids(sidr.search("copper harbor", min_score=2, rerank=5)) == ["t0"]
    assert ids(sidr.search("copper harbor", min_score=-math.inf)) == ["t0", "t1", "t4"]
    assert ids(sidr.search("copper harbor", min_score=1.01, search="full")) == ["t0"]


def test_a_filter_holds_in_every_way_of_searching(sidr):
    for arguments in ({}, {"rerank": 2}, {"search": "full"}, {"search": "alpha"}, {"first_stage": "lexical"}):
        assert ids(sidr.search("the copper", k=1, filter={"n": {"gte": 3}}, **arguments)) == ["t3"]
        assert sidr.search("the copper", filter={"n": 77}, **arguments) == []


def test_search_vectors_is_the_binary_search(sidr):
    vectors = sidr.bags(["copper harbor", "zebra", "winter"])
    hits = sidr.search_vectors(vectors, k=2)
    assert hits.ids == [["t0", "t1"], [], ["t2", "t3"]]
    assert hits.scores.dtype == np.float32
    assert hits.scores[0].tolist() == [2.0, 1.0]
    assert hits.scores[1].tolist() == [-math.inf, -math.inf]
    assert sidr.search_vectors(vectors, k=5, filter={"n": 4}).ids == [["t4"], [], []]
    assert sidr.search_vectors(vectors, k=0).ids == [[], [], []]
    assert sidr.search_vectors(sidr.bags([]), k=3).ids == []
    with pytest.raises(InvalidInputError, match="dim"):
        sidr.search_vectors(SparseVectors.from_rows([([1], [1.0])], 5))


def test_bags_are_the_distinct_tokens(sidr, tokenizer):
    vectors = sidr.bags(["copper copper harbor", ""])
    vocabulary = tokenizer.vocabulary
    assert sorted(vocabulary.token(int(d)) for d in vectors.row(0)[0]) == ["copper", "harbor"]
    assert vectors.row(0)[1].tolist() == [1.0, 1.0]
    assert len(vectors.row(1)[0]) == 0


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=["binary", "levelled"])
def test_explanations_add_up_to_the_score(make, tokenizer, weighting):
    sidr = filled(make, weighting=weighting, encoder=StubEncoder(tokenizer, spread=3))
    sidr.add(["copper copper copper copper harbor"], ids=["many"])
    for query in ("copper harbor", "winter", "copper zebra"):
        for result in sidr.search(query):
            explained = sidr.explain(query, result.passage.id)
            assert np.float32(explained.score).tobytes() == np.float32(result.score).tobytes()
            assert math.fsum(p.contribution for p in explained.parts) == pytest.approx(explained.score, rel=1e-6)
            assert all(p.contribution > 0 for p in explained.parts)
    explained = sidr.explain("copper zebra", "many")
    by_token = {p.token: p for p in explained.parts}
    assert by_token["copper"].levels == len(weighting.levels)
    assert by_token["copper"].in_query
    assert explained.missed == ("zebra",)
    assert sidr.explain("zebra", "t0").score == pytest.approx(0, abs=10)
    with pytest.raises(InvalidInputError, match="'nobody'"):
        sidr.explain("copper", "nobody")


def test_lexical_search_needs_no_encoder(make, tokenizer):
    encoder = StubEncoder(tokenizer, spread=2)
    sidr = filled(make, encoder=encoder)

    encode = encoder._encode
    encoder._encode = lambda texts, representation, k: (
        encode(texts, representation, k) if representation == "bot" else pytest.fail("encoded")
    )
    assert ids(sidr.search("copper", first_stage="lexical")) == ["t0", "t1"]
    assert ids(sidr.search("copper", query_repr="bot")) == ["t0", "t1"]


def test_max_active_dims_cuts_the_query(make, tokenizer):
    sidr = filled(make, encoder=StubEncoder(tokenizer, spread=4))
    few = sidr.search("copper harbor", k=100, max_active_dims=1)
    many = sidr.search("copper harbor", k=100)
    assert len(few) <= len(many)
    [(dims, _)] = sidr.encode_queries(["copper harbor"], max_active_dims=1)
    assert len(dims) == 1


# Late rerank


def test_the_best_m_come_by_the_second_score_then_the_rest_in_order(make, tokenizer):
    class Reverse:
        def rerank(self, query, passages, beta_scores):
            self.seen = (query, [p.id for p in passages], beta_scores.tolist())
            return np.arange(len(passages), dtype=np.float64)

    sidr = make()
    sidr.add([f"copper {'harbor ' * (i < 2)}" for i in range(6)], ids=[str(i) for i in range(6)])
    reranker = Reverse()
    results = sidr.search("copper harbor", k=5, rerank=3, reranker=reranker)
    assert reranker.seen == ("copper harbor", ["0", "1", "2"], [2.0, 2.0, 1.0])
    assert [(r.passage.id, r.score, r.rank, r.beta_score, r.reranked) for r in results] == [
        ("2", 2.0, 1, 1.0, True),
        ("1", 1.0, 2, 2.0, True),
        ("0", 0.0, 3, 2.0, True),
        ("3", 1.0, 4, 1.0, False),
        ("4", 1.0, 5, 1.0, False),
    ]
    assert ids(sidr.search("copper harbor", k=2, rerank=4, reranker=reranker)) == ["3", "2"]
    assert ids(sidr.search("copper harbor", k=9, rerank=50, reranker=reranker)) == list("543210")
    assert ids(sidr.search("copper harbor", k=0, rerank=5, reranker=reranker)) == []


def test_equal_second_scores_keep_the_first_stage_s_order(make):
    class Constant:
        def rerank(self, query, passages, beta_scores):
            return [1.0] * len(passages)

    sidr = filled(make)
    assert ids(sidr.search("copper harbor", rerank=10, reranker=Constant())) == ids(sidr.search("copper harbor"))


@pytest.mark.parametrize(
    "scores", [[float("nan")] * 3, [math.inf, 1, 2], [1.0, 2.0], [[1.0, 2.0, 3.0]], 5.0, None], ids=repr
)
def test_a_reranker_s_scores_are_checked(make, scores):
    class Odd:
        def rerank(self, query, passages, beta_scores):
            return scores

    with pytest.raises(InvalidInputError, match="reranker"):
        filled(make).search("copper harbor", rerank=3, reranker=Odd())


def test_a_reranker_s_error_reaches_the_caller(make):
    class Failing:
        def rerank(self, query, passages, beta_scores):
            raise ZeroDivisionError("the reranker's own")

    sidr = filled(make)
    with pytest.raises(ZeroDivisionError, match="own"):
        sidr.search("copper", rerank=2, reranker=Failing())
    assert sidr.search("zebra", rerank=2, reranker=Failing()) == []
    assert len(sidr.search("copper", reranker=Failing())) == 2


def test_a_reranker_cannot_change_the_store(make):
    class Writing:
        def rerank(self, query, passages, beta_scores):
            for p in passages:
                p.metadata["score"] = 1
            beta_scores[:] = 0
            return np.zeros(len(passages))

    sidr = filled(make)
    results = sidr.search("copper", rerank=2, reranker=Writing())
    assert [r.passage.metadata for r in results] == [{"n": 0}, {"n": 1}]
    assert [r.beta_score for r in results] == [1.0, 1.0]


def test_late_scores_are_theta_by_theta(make, tokenizer):
    encoder = StubEncoder(tokenizer, spread=3)
    sidr = filled(make, encoder=encoder)
    for arguments in ({}, {"first_stage": "lexical"}, {"query_repr": "bin"}, {"query_repr": "lex"}):
        results = sidr.search("copper harbor", rerank=10, reranker="theta", **arguments)
        query = encoder.encode_queries(["copper harbor"]).toarray()[0].astype(np.float64)
        for r in results:
            passage = encoder.encode_passages([r.passage.content]).toarray()[0].astype(np.float16)
            assert r.score == pytest.approx(float(query @ passage.astype(np.float64)), rel=1e-6)
            assert r.reranked
        assert [r.score for r in results] == sorted((r.score for r in results), reverse=True)


def test_the_model_s_own_way_blends(make, tokenizer):
    sidr = filled(make, encoder=StubEncoder(tokenizer, spread=3, rerank_blend=0.7))
    first = sidr.search("copper harbor")
    theta = {r.passage.id: r.score for r in sidr.search("copper harbor", rerank=10, reranker="theta")}
    beta = np.array([r.score for r in first])
    late = np.array([theta[r.passage.id] for r in first])
    expected = 0.7 * (beta - beta.mean()) / beta.std() + 0.3 * (late - late.mean()) / late.std()
    for reranker in (None, "blend"):
        got = {r.passage.id: r.score for r in sidr.search("copper harbor", rerank=10, reranker=reranker)}
        np.testing.assert_allclose([got[r.passage.id] for r in first], expected, rtol=1e-9)


def test_the_cache_changes_no_bit_and_a_new_encoder_drops_it(make, tmp_path, tokenizer):
    def scores(sidr):
        return [(r.passage.id, r.score.hex()) for r in sidr.search("copper harbor", rerank=10)]

    fresh = scores(filled(make, encoder=StubEncoder(tokenizer, spread=3)))
    first = StubEncoder(tokenizer, spread=3)
    sidr = filled(make, tmp_path / "s", encoder=first)
    assert scores(sidr) == scores(sidr) == fresh
    assert len(first.encoded) == 3
    sidr.close()
    again = StubEncoder(tokenizer, spread=3)
    sidr = make(tmp_path / "s", encoder=again)
    assert scores(sidr) == fresh
    assert again.encoded == []
    sidr.close()
    other = StubEncoder(tokenizer, spread=5, fingerprint="stub-2")
    sidr = make(tmp_path / "s", encoder=other)
    assert scores(sidr) == scores(filled(make, encoder=StubEncoder(tokenizer, spread=5)))
    assert len(other.encoded) == 3


def test_a_damaged_cache_changes_no_bit(make, tmp_path, tokenizer):
    sidr = filled(make, tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3))
    expected = sidr.search("copper harbor", rerank=10)
    sidr.close()
    (tmp_path / "s" / "embeddings.db").write_bytes(b"damaged" * 999)
    sidr = make(tmp_path / "s", encoder=StubEncoder(tokenizer, spread=3))
    with pytest.warns(RuntimeWarning, match="embeddings"):
        assert sidr.search("copper harbor", rerank=10) == expected


def test_a_rebuilt_segment_is_filtered_like_the_damaged_one(make, tmp_path):
    sidr = filled(make, tmp_path / "s")
    conditions = [{"n": {"gte": 1}}, {"n": 0}, {"not": {"n": 1}}, {"m": {"exists": False}}]
    expected = [sidr.search("copper harbor winter", filter=c) for c in conditions]
    assert [len(r) for r in expected] == [4, 1, 4, 5]
    sidr.close()
    for path in (tmp_path / "s" / "segments").iterdir():
        path.unlink()
    with pytest.warns(RuntimeWarning, match="rebuilding"):
        sidr = make(tmp_path / "s")
    assert [sidr.search("copper harbor winter", filter=c) for c in conditions] == expected


# Full and alpha search


@pytest.mark.parametrize("search", ["full", "alpha"])
@pytest.mark.parametrize("kernel", ["numpy", "numba"])
def test_full_and_alpha_search_are_dense_products(make, tokenizer, search, kernel):
    encoder = StubEncoder(tokenizer, spread=4)
    sidr = filled(make, encoder=encoder, kernel=kernel)
    sidr.delete(["t1"])
    sidr.add(["copper and winter", ""], ids=["t5", "t6"])
    living = [0, 2, 3, 4, 5]
    texts = [*TEXTS, "copper and winter"]
    representation = "theta" if search == "full" else "bot"
    query = encoder.encode_queries(["copper harbor"], representation=representation).toarray()[0].astype(np.float64)
    dense = encoder.encode_passages([texts[i] for i in living]).toarray().astype(np.float16).astype(np.float64)
    expected = sorted(((-float(np.float32(v)), i) for v, i in zip(dense @ query, living, strict=True) if v > 0))
    results = sidr.search("copper harbor", k=20, search=search)
    assert ids(results) == [f"t{i}" for _, i in expected]
    np.testing.assert_allclose([r.score for r in results], [-v for v, _ in expected], rtol=1e-6)
    assert all(r.beta_score is None and not r.reranked for r in results)


def test_full_search_follows_every_change(make, tokenizer):
    encoder = StubEncoder(tokenizer, spread=2)
    sidr = filled(make, encoder=encoder)
    assert sidr.embed() == 5
    assert len(encoder.encoded) == 5
    sidr.search("copper", search="full")
    sidr.add(["copper copper"], ids=["new"])
    assert "new" in ids(sidr.search("copper", search="full"))
    sidr.delete(["new", "t0"])
    assert not {"new", "t0"} & set(ids(sidr.search("copper", search="full")))
    assert len(encoder.encoded) == 6


# Pickling, processes and threads


def test_a_store_in_a_folder_can_be_pickled(make, tmp_path):
    sidr = filled(make, tmp_path / "s", num_threads=1)
    copy = pickle.loads(pickle.dumps(sidr))
    assert copy.search("copper harbor") == sidr.search("copper harbor")
    sidr.add(["copper again"], ids=["new"])
    assert "new" in ids(copy.search("copper"))
    copy.close()


def test_pickling_keeps_read_only_and_needs_a_folder(make, tmp_path):
    filled(make, tmp_path / "s")
    reader = make(tmp_path / "s", read_only=True)
    copy = pickle.loads(pickle.dumps(reader))
    with pytest.raises(ReadOnlyError):
        copy.add(["x"])
    copy.close()
    with pytest.raises(InvalidTypeError, match="save"):
        pickle.dumps(make())


CHILD = """
import sys
from pathlib import Path
from stub_encoders import default_tokenizer, stub_sidr
sidr = stub_sidr(default_tokenizer(), Path(sys.argv[1]))
"""


def test_processes_see_each_other_s_commits(make, tmp_path, child):
    sidr = filled(make, tmp_path / "s")
    reader = CHILD + "print([r.passage.id for r in sidr.search('copper', k=20)])"
    assert child(reader, tmp_path / "s").stdout == "['t0', 't1']\n"
    sidr.close()
    here = make(tmp_path / "s", read_only=True)
    assert here.refresh() == 5
    child(CHILD + "sidr.add(['copper pan'], ids=['p']); sidr.delete(['t0']); sidr.close()", tmp_path / "s")
    assert here.refresh() == 5
    assert ids(here.search("copper")) == ["t1", "p"]
    assert here.ids() == ["t1", "t2", "t3", "t4", "p"]


def test_a_second_writer_process_is_refused_by_name(make, tmp_path, child):
    sidr = filled(make, tmp_path / "s")
    done = child(CHILD + "sidr.add(['x'])", tmp_path / "s", check=False)
    assert done.returncode != 0
    assert "StoreLockedError" in done.stderr
    assert f"process {os.getpid()}" in done.stderr
    assert len(sidr) == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_search_and_the_parent_goes_on(make, tmp_path):
    sidr = filled(make, tmp_path / "s", num_threads=2)
    expected = sidr.search(["copper", "winter"])
    pid = os.fork()
    if pid == 0:
        try:
            ok = sidr.search(["copper", "winter"]) == expected
            try:
                sidr.add(["x"])
                ok = False
            except StoreLockedError:
                pass
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    sidr.add(["copper pan"], ids=["p"])
    assert "p" in ids(sidr.search("copper"))


def test_a_killed_writer_leaves_whole_commits(make, tmp_path, start_child):
    script = CHILD + (
        "i = 0\n"
        "while True:\n"
        "    sidr.add([f'copper {i}-{j}' for j in range(10)], ids=[f'{i}-{j}' for j in range(10)])\n"
        "    if i >= 3: sidr.delete([f'{i - 3}-{j}' for j in range(10)])\n"
        "    print(i, flush=True)\n"
        "    i += 1\n"
    )
    for wait in (0.0, 0.03, 0.11):
        process = start_child(script, tmp_path / "s")
        process.stdout.readline()
        time.sleep(wait)
        process.kill()
        done = process.stdout.read().split()
        process.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sidr = make(tmp_path / "s")
            by_block = {}
            for name in sidr.ids():
                by_block.setdefault(name.split("-")[0], []).append(name)
            assert all(len(names) == 10 for names in by_block.values())
            assert sorted(r.passage.id for r in sidr.search("copper", k=1000)) == sorted(sidr.ids())
            if done:
                assert done[-1] in by_block
            sidr.delete(sidr.ids())
            sidr.close()


def test_threads_search_while_others_change(make, run_beside, tmp_path):
    sidr = make(tmp_path / "s")
    sidr.add([f"anchor {i}" for i in range(20)], ids=[f"a{i}" for i in range(20)], metadatas=[{"keep": True}] * 20)

    def searching(**arguments):
        def search(n):
            found = sidr.search("anchor", k=100, **arguments)
            assert {f"a{i}" for i in range(20)} <= set(ids(found)), "an anchor is missing"
            assert all(r.passage.text.startswith("anchor") for r in found)

        return search

    def write(i):
        sidr.add([f"anchor x{i}", f"anchor {i % 20}"], ids=[f"x{i}", f"a{i % 20}"], metadatas=[{"keep": True}] * 2)
        sidr.delete([f"x{i}"])

    options = ({}, {"filter": {"keep": True}}, {"search": "full"}, {"rerank": 5})
    run_beside(*(searching(**each) for each in options), write)
    assert len(sidr) == 20


def test_deleting_the_folder_beneath_a_reader(make, tmp_path):
    sidr = filled(make, tmp_path / "s")
    expected = sidr.search("copper")
    shutil.rmtree(tmp_path / "s")
    assert sidr.search("copper") == expected
    with pytest.raises((SidrError, OSError)):
        sidr.add(["x"])


def test_messages_hold_no_text(make):
    sidr = filled(make)
    secret = "topsecretum"
    calls = [
        lambda: sidr.add([secret, 5]),
        lambda: sidr.add([secret], metadatas=[{secret: object()}]),
        lambda: sidr.add([secret], metadatas=[{"k": {secret}}]),
        lambda: sidr.add([secret], metadatas=[secret]),
        lambda: sidr.add([secret], titles=[5]),
        lambda: sidr.search(secret, k=-1),
        lambda: sidr.search([secret, 5]),
        lambda: sidr.search(secret, filter={"a": {"like": secret}}),
        lambda: sidr.add(secret),
    ]
    for call in calls:
        with pytest.raises((InvalidInputError, InvalidTypeError)) as caught:
            call()
        assert secret not in str(caught.value)
        assert re.search(r"\w+", str(caught.value))
