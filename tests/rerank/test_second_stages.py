import numpy as np
import pytest
from stub_encoders import StubEncoder

from sidr_rag import SiDR
from sidr_rag.encoder import load_encoder
from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.rerank import BiEncoder, Blend
from sidr_rag.rerank.codecs import ByteVectors
from sidr_rag.rerank.late import blend_scores
from sidr_rag.types import Passage

TEXTS = ["copper harbor ledger", "copper kettle", "winter garden", "copper river harbor", "harbor"]


def ids(results):
    return [r.passage.id for r in results]


class WordVectors:
    """A stand-in for a SentenceTransformer: one number for the length, one for each of two letters."""

    max_seq_length = 99

    def __init__(self):
        self.texts = []

    def get_sentence_embedding_dimension(self):
        return 3

    def encode(self, texts, **options):
        self.texts += texts
        return np.array([[len(t) / 10, t.count("r"), t.count("e")] for t in texts], np.float32)


@pytest.fixture
def sidr(make, tokenizer):
    made = make(encoder=StubEncoder(tokenizer, spread=3, rerank_blend=0.4))
    made.add(TEXTS, ids=list("abcde"))
    return made


def test_a_bi_encoder_orders_by_inner_products_of_rounded_vectors(sidr):
    model = WordVectors()
    encoder = BiEncoder(model)
    results = sidr.search("copper harbor", k=9, rerank=9, reranker=encoder)
    codec = ByteVectors()
    query = model.encode(["copper harbor"])[0]
    for r in results:
        rounded = codec.decode(*codec.encode(model.encode([r.passage.content])[0]))
        assert r.score == pytest.approx(float(query.astype(np.float64) @ rounded.astype(np.float64)), rel=1e-12)
        assert r.reranked
    assert [r.score for r in results] == sorted((r.score for r in results), reverse=True)
    model.texts.clear()
    assert sidr.search("copper harbor", k=9, rerank=9, reranker=encoder) == results
    assert model.texts == ["copper harbor"], "passages come from the cache"
    assert sidr.search("copper harbor", k=9, rerank=9, reranker=BiEncoder(WordVectors())) == results


def test_what_a_search_costs_by_its_stages(sidr):
    encoder = BiEncoder(WordVectors())
    with sidr.measured() as beta:
        sidr.search(["copper", "harbor"])
    assert (beta.searches, beta.queries, beta.passages, beta.texts) == (2, 2, 0, 2)
    with sidr.measured() as late:
        sidr.search("copper harbor", rerank=3, reranker="theta")
    assert (late.queries, late.passages, late.cache_hits) == (1, 3, 0)
    with sidr.measured() as again:
        sidr.search("copper harbor", rerank=4, reranker="theta")
    assert (again.queries, again.passages, again.cache_hits) == (1, 1, 3)
    with sidr.measured() as two:
        sidr.search("copper harbor", rerank=4, reranker=encoder)
    assert (two.queries, two.passages, two.texts) == (2, 4, 6), "two models embed the question, as the paper counts"
    with sidr.measured() as words:
        sidr.search("copper harbor", rerank=4, reranker=encoder, first_stage="lexical")
    assert (words.queries, words.passages, words.cache_hits) == (1, 0, 4)
    with sidr.measured() as pairs:
        sidr.search("copper harbor", rerank=2, reranker=lambda q, passages, first: np.arange(len(passages)))
    assert (pairs.pairs, pairs.passages) == (2, 0)


def test_a_callable_is_a_second_stage(sidr):
    def by_length(query, passages, scores):
        assert query == "copper harbor"
        assert len(scores) == len(passages)
        return [len(p.text) for p in passages]

    got = sidr.search("copper harbor", k=9, rerank=9, reranker=by_length)
    assert ids(got) == ["a", "d", "b", "e"]
    with pytest.raises(InvalidInputError, match="finite"):
        sidr.search("copper", rerank=2, reranker=lambda q, passages, scores: [float("nan")] * len(passages))


def test_a_blend_is_a_share_of_z_scores(sidr):
    def z(values):
        values = np.array(values, np.float64)
        return (values - values.mean()) / values.std()

    first = {r.passage.id: r.score for r in sidr.search("copper harbor", k=9)}
    theta = {r.passage.id: r.score for r in sidr.search("copper harbor", k=9, rerank=9, reranker="theta")}
    expected = dict(zip(first, 0.25 * z(list(first.values())) + 0.75 * z([theta[i] for i in first]), strict=True))
    got = sidr.search("copper harbor", k=9, rerank=9, reranker=Blend("theta", 0.25))
    assert {r.passage.id: pytest.approx(r.score, rel=1e-12) for r in got} == expected
    own = sidr.search("copper harbor", k=9, rerank=9)
    assert sidr.search("copper harbor", k=9, rerank=9, reranker=Blend(None, 0.4)) == own
    assert sidr.search("copper harbor", k=9, rerank=9, reranker="blend") == own
    assert ids(sidr.search("copper harbor", k=9, rerank=9, reranker=Blend("theta", 1))) == list(first)
    assert sidr.search("copper harbor", k=9, rerank=9, reranker=Blend("theta", 0)) == sidr.search(
        "copper harbor", k=9, rerank=9, reranker="theta"
    )


@pytest.mark.parametrize(
    ("make_choice", "word"),
    [
        (lambda: Blend("theta", 2), "share"),
        (lambda: Blend("theta", True), "share"),
        (lambda: Blend("blend"), "blend already"),
        (lambda: Blend(Blend("theta")), "blend already"),
        (lambda: Blend("nothing"), "nothing"),
        (lambda: Blend(5), "int"),
        (lambda: Blend("Both"), "'both'"),
    ],
)
def test_a_blend_of_nothing_is_refused(make_choice, word):
    with pytest.raises((InvalidInputError, InvalidTypeError), match=word):
        make_choice()


def test_other_choices_are_refused(sidr):
    with pytest.raises(InvalidInputError, match="'nothing'"):
        sidr.search("copper", reranker="nothing")
    with pytest.raises(InvalidTypeError, match="int"):
        sidr.search("copper", reranker=7)
    with pytest.raises(InvalidTypeError, match="type"):
        sidr.search("copper", reranker=BiEncoder)
    for reranker in ("dense", "both", "all", Blend("both"), Blend("all")):
        with pytest.raises(InvalidInputError, match="no dense head"):
            sidr.search("copper", rerank=3, reranker=reranker)
    for reranker in ("maxsim", Blend("maxsim")):
        with pytest.raises(InvalidInputError, match="no vectors of tokens"):
            sidr.search("copper", rerank=3, reranker=reranker)
    assert sidr.search("zebra", rerank=3, reranker="theta") == []


# Models with a dense head, and other models' V_theta: tiny, with weights drawn by a seed


def some_texts():
    return [f"a{i} a{i + 1} a{(i * 7) % 30} a5" for i in range(12)]


def test_a_model_with_a_dense_head_uses_it_by_itself(tiny_folder, tmp_path):
    folder = tiny_folder("two-heads", 1, dense={"pooling": "mean", "normalize": True}, rerank_blend=0.3)
    with SiDR.from_texts(some_texts(), path=tmp_path / "s", model=folder, backend="numpy") as sidr:
        with sidr.measured() as costs:
            own = sidr.search("a5 a6", rerank=6)
        assert (costs.queries, costs.passages) == (1, 6), "both heads' vectors of the query come from one reading"
        assert costs.query_tokens == 2
        with sidr.measured() as costs:
            sidr.search("a5 a6", rerank=6, first_stage="lexical")
        assert (costs.queries, costs.query_tokens) == (1, 2)
        dense = {r.passage.id: r.score for r in sidr.search("a5 a6", rerank=6, reranker="dense")}
        encoder = sidr.encoder
        query = encoder.encode_dense(["a5 a6"], "query")[0].astype(np.float64)
        codec = ByteVectors()
        for r in sidr.search("a5 a6", rerank=6, reranker="dense")[:6]:
            rounded = codec.decode(*codec.encode(encoder.encode_dense([r.passage.content])[0])).astype(np.float64)
            assert r.score == pytest.approx(float(query @ rounded), rel=1e-6)
        blended = sidr.search("a5 a6", rerank=6, reranker=Blend("dense", 0.3))
        assert blended == own
        assert sidr.search("a5 a6", rerank=6, reranker="theta") != own
        assert len(dense) == 10
        with sidr.measured() as costs:
            assert sidr.embed() == 12
        assert costs.passages == 6, "both heads' vectors of what no search has read come from one reading"
    with SiDR.open(tmp_path / "s", model=folder, backend="numpy") as again:
        with again.measured() as costs:
            assert again.search("a5 a6", k=12, rerank=12)
            again.search("a5 a6", search="full")
        assert costs.passages == 0, "both heads' vectors of every passage were kept"


def test_both_heads_have_half_of_the_second_stage_each(tiny_folder, tmp_path):
    def z(values):
        values = np.array(values, np.float64)
        return (values - values.mean()) / values.std()

    folder = tiny_folder("halves", 6, dense={"pooling": "mean", "normalize": True}, rerank_blend=0.3)
    with SiDR.from_texts(some_texts(), path=tmp_path / "s", model=folder, backend="numpy") as sidr:
        with sidr.measured() as costs:
            both = sidr.search("a5 a6", rerank=8, k=8, reranker="both")
        assert (costs.queries, costs.passages) == (1, 8), "one reading gives both vectors"
        first, theta, dense = (
            {r.passage.id: value(r) for r in sidr.search("a5 a6", rerank=8, k=8, reranker=reranker)}
            for reranker, value in (
                ("theta", lambda r: r.beta_score),
                ("theta", lambda r: r.score),
                ("dense", lambda r: r.score),
            )
        )
        names = list(first)
        heads = 0.5 * z([theta[i] for i in names]) + 0.5 * z([dense[i] for i in names])
        for share, reranker in ((0.3, "both"), (0.8, Blend("both", 0.8))):
            expected = dict(zip(names, share * z(list(first.values())) + (1 - share) * z(heads), strict=True))
            found = sidr.search("a5 a6", rerank=8, k=8, reranker=reranker)
            assert {r.passage.id: pytest.approx(r.score, rel=1e-9) for r in found} == expected
        assert both == sidr.search("a5 a6", rerank=8, k=8, reranker=Blend("both", 0.3))
        assert both != sidr.search("a5 a6", rerank=8, k=8)
        with SiDR.from_texts(some_texts(), model=folder, backend="numpy") as fresh, fresh.measured() as costs:
            fresh.search("a5 a6", rerank=8, k=8, reranker="all")
        assert (costs.queries, costs.passages) == (1, 8), "one reading gives all three"
        tokens = {r.passage.id: r.score for r in sidr.search("a5 a6", rerank=8, k=8, reranker="maxsim")}
        everything = 0.5 * z(heads) + 0.5 * z([tokens[i] for i in names])
        for share, reranker in ((0.15, "all"), (0.8, Blend("all", 0.8))):
            expected = dict(zip(names, share * z(list(first.values())) + (1 - share) * z(everything), strict=True))
            found = sidr.search("a5 a6", rerank=8, k=8, reranker=reranker)
            assert {r.passage.id: pytest.approx(r.score, rel=1e-9) for r in found} == expected


def test_an_evaluation_of_a_model_with_a_dense_head(tiny_folder):
    from sidr_rag.eval import Dataset, evaluate

    encoder = load_encoder(tiny_folder("judged", 4, dense={"pooling": "mean", "normalize": True}, rerank_blend=0.3))
    passages = {f"p{i}": text for i, text in enumerate(some_texts())}
    queries = {"q1": "a5 a6", "q2": "a3 a7 a5"}
    data = Dataset("heads", "test", lambda: (Passage(i, t) for i, t in passages.items()), queries, {"q1": {"p1": 1}})
    report = evaluate(data, ["late@4", "bm25", "bm25+late@4", "bm25+late-theta@4", "bm25+late-dense@4"], model=encoder)
    costs = {name: (r.cost.queries, r.cost.passages) for name, r in report.results.items()}
    assert costs == {"bm25": (0, 0)} | dict.fromkeys(costs.keys() - {"bm25"}, (2, 8))
    assert report.encoded > 0
    for query_id, query in queries.items():
        first = report.results["bm25"].run[query_id][:4]
        vector = encoder.encode_dense([query], "query")[0].astype(np.float64)
        dense = np.array([vector @ encoder.encode_dense([passages[i]])[0] for i, _ in first])
        blended = blend_scores(np.array([s for _, s in first], np.float32), dense, 0.3)
        for name, scores in (("bm25+late@4", blended), ("bm25+late-dense@4", dense)):
            found = dict(report.results[name].run[query_id])
            assert [found[i] for i, _ in first] == pytest.approx(scores, abs=0.05), name
        theta = dict(report.results["bm25+late-theta@4"].run[query_id])
        vectors = encoder.encode_passages([passages[i] for i, _ in first]).toarray()
        expected = vectors @ encoder.encode_queries([query]).toarray()[0]
        assert [theta[i] for i, _ in first] == pytest.approx(expected, rel=1e-2)


def test_a_model_may_say_what_its_own_way_is(tiny_folder):
    heads = {"dense": {"pooling": "mean", "normalize": True}, "rerank_blend": 0.4}
    for way in ("theta", "maxsim", "both", "all"):
        folder = tiny_folder(f"way-{way}", 6, **heads, reranker=way)
        with SiDR.from_texts(some_texts(), model=folder, backend="numpy") as sidr:
            own = sidr.search("a5 a6", rerank=8, k=8)
            assert own == sidr.search("a5 a6", rerank=8, k=8, reranker="blend")
            share = 0.2 if way == "all" else 0.4
            assert own == sidr.search("a5 a6", rerank=8, k=8, reranker=Blend(way, share))
            assert own != sidr.search("a5 a6", rerank=8, k=8, reranker=Blend("dense", 0.4))
            halves = sidr.search("a5 a6", rerank=8, k=8, reranker=Blend(None, 0.5))
            assert halves == sidr.search("a5 a6", rerank=8, k=8, reranker=Blend(way, 0.5))


def test_bm25_is_re_ranked_by_everything_as_beta_is(tiny_folder):
    from sidr_rag.eval import Dataset, evaluate

    encoder = load_encoder(tiny_folder("all", 4, dense={"pooling": "mean", "normalize": True}, rerank_blend=0.0))
    passages = {f"p{i}": text for i, text in enumerate(some_texts())}
    queries = {"q1": "a5 a6", "q2": "a3 a7 a5"}
    data = Dataset("heads", "test", lambda: (Passage(i, t) for i, t in passages.items()), queries, {"q1": {"p1": 1}})
    names = [f"{first}late-{kind}@12" for first in ("", "bm25+") for kind in ("all", "maxsim")]
    runs = {name: result.run for name, result in evaluate(data, names, model=encoder).results.items()}
    for kind in ("all", "maxsim"):
        for query_id in queries:
            ours, theirs = (dict(runs[f"{first}late-{kind}@12"][query_id]) for first in ("", "bm25+"))
            assert len(ours) == len(theirs) == 12, "a5 is in every passage"
            assert {i: pytest.approx(score, rel=1e-9) for i, score in ours.items()} == theirs
    assert runs["late-all@12"] != runs["late-maxsim@12"]


def test_the_v_theta_of_another_model(tiny_folder):
    one, two = tiny_folder("one", 2), tiny_folder("two", 3)
    other = load_encoder(two, backend="numpy")
    with SiDR.from_texts(some_texts(), model=one, backend="numpy") as sidr:
        results = sidr.search("a5 a6", rerank=20, k=20, reranker=other)
        [(dims, weights)] = other.encode_queries(["a5 a6"])
        query = np.zeros(other.dim)
        query[dims] = weights
        for r in results:
            passage = other.encode_passages([r.passage.content]).toarray()[0].astype(np.float16).astype(np.float64)
            assert r.score == pytest.approx(float(query @ passage), rel=1e-6)
        own = sidr.search("a5 a6", rerank=20, k=20, reranker="theta")
        assert [r.score for r in own] != [r.score for r in results]
        with sidr.measured() as costs:
            sidr.search("a5 a6", rerank=20, k=20, reranker=other)
        assert (costs.passages, costs.cache_hits > 0) == (0, True)
