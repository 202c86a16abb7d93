"""A model may search its binary index with fewer dimensions of a question than elsewhere, and by layers of its own."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from sidr_rag import SiDR, Weighting
from sidr_rag.similarity import search_relevance

DIMS, ALL = 150, 500
TEXTS = [f"a{i} a{i + 1} a{(i * 7) % 30} a5 a{i * 31 % 900}" for i in range(40)]
QUESTIONS = ["a5 a6", "a30", "a1 a2 a3 a4 a5 a6"]


def _tiny_models():
    spec = importlib.util.spec_from_file_location(
        "tiny", Path(__file__).resolve().parents[1] / "encoder" / "conftest.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tiny = _tiny_models()
    folder = tmp_path_factory.mktemp("models") / "few"
    settings = {"max_active_dims": {"query": ALL, "passage": ALL}, "binary_active_dims": DIMS}
    return tiny.write_model(folder, tiny.tiny_weights(), **settings)


@pytest.fixture
def binary(folder):
    with SiDR.from_texts(TEXTS, model=folder, backend="numpy", weighting="binary") as sidr:
        yield sidr


@pytest.mark.parametrize("representation", ["theta", "bin"])
def test_binary_search_takes_so_many(binary, representation):
    few = binary.search(QUESTIONS, k=40, query_repr=representation)
    assert few == binary.search(QUESTIONS, k=40, query_repr=representation, max_active_dims=DIMS)
    assert few != binary.search(QUESTIONS, k=40, query_repr=representation, max_active_dims=ALL)
    own = binary.encoder.own_dims(QUESTIONS[:1], "query")[0]
    parts = binary.explain(QUESTIONS[0], few[0][0].passage.id, query_repr=representation).parts
    assert 0 < len(parts) <= DIMS + len(own)
    assert sum(part.contribution for part in parts) == pytest.approx(few[0][0].score, rel=1e-5)


def test_relevance_is_of_the_same_search(binary):
    for question in QUESTIONS:
        found = [passage.id for passage, _ in search_relevance(binary, question, k=10)]
        assert found == [r.passage.id for r in binary.search(question, k=10)]


def test_what_is_read_again_is_judged_by_all_dimensions(binary):
    first = binary.search(QUESTIONS[0], k=40)
    again = binary.search(QUESTIONS[0], k=40, rerank=40, reranker="theta")
    assert {r.passage.id for r in again} == {r.passage.id for r in first}
    wide = binary.search(QUESTIONS[0], k=40, rerank=40, reranker="theta", max_active_dims=ALL)
    scores = {r.passage.id: r.score for r in wide}
    assert all(r.score == scores[r.passage.id] for r in again if r.passage.id in scores)


def test_other_searches_take_all(folder, binary):
    levelled = Weighting((1, 2), (1.0, 0.5), idf_exponent=1.0, theta_blend=0.5)
    with SiDR.from_texts(TEXTS, model=folder, backend="numpy", weighting=levelled) as sidr:
        assert sidr.search(QUESTIONS, k=40) == sidr.search(QUESTIONS, k=40, max_active_dims=ALL)
        assert sidr.search(QUESTIONS, k=40) != sidr.search(QUESTIONS, k=40, max_active_dims=DIMS)
    assert binary.search(QUESTIONS, search="full") == binary.search(QUESTIONS, search="full", max_active_dims=ALL)


def test_a_number_that_was_asked_for_holds_in_every_search(folder):
    with SiDR.from_texts(TEXTS, model=folder, backend="numpy", weighting="binary", max_active_dims=ALL) as sidr:
        assert sidr.search(QUESTIONS, k=40) == sidr.search(QUESTIONS, k=40, max_active_dims=ALL)


@pytest.fixture(scope="module")
def own_layer(tmp_path_factory):
    """The same model, its last layer for binary beta's questions another one."""
    tiny = _tiny_models()
    other = {
        name: value for name, value in tiny.tiny_weights(7).items() if "layer.1." in name or name.startswith("ln.")
    }
    weights = tiny.tiny_weights() | {f"binary.{name.removeprefix('bert_model.')}": v for name, v in other.items()}
    settings = {"max_active_dims": {"query": ALL, "passage": ALL}, "binary_active_dims": DIMS, "binary_layers": 1}
    return tiny.write_model(tmp_path_factory.mktemp("models") / "own", weights, **settings)


@pytest.mark.parametrize("representation", ["theta", "bin", "lex"])
@pytest.mark.parametrize("dims", [None, 60])
def test_binary_search_reads_questions_by_the_layers_it_has_of_its_own(own_layer, representation, dims):
    asked = {"query_repr": representation, "max_active_dims": dims}
    with SiDR.from_texts(TEXTS, model=own_layer, backend="numpy", weighting="binary") as sidr:
        found = sidr.search(QUESTIONS, k=40, **asked)
        vectors = sidr.encoder.encode_binary_queries(QUESTIONS, representation=representation, max_active_dims=dims)
        bags = sidr.encoder.encode_passages(TEXTS, representation="bot")
        for i, results in enumerate(found):
            weights = dict(zip(*map(np.ndarray.tolist, vectors.row(i)), strict=True))
            by_hand = [sum(weights.get(dim, 0.0) for dim in own.tolist()) for own, _ in bags]
            assert results[0].score == pytest.approx(max(by_hand), rel=1e-5)
            assert len(results) == sum(score > 0 for score in by_hand)
            explained = sidr.explain(QUESTIONS[i], results[0].passage.id, **asked)
            assert sum(part.contribution for part in explained.parts) == pytest.approx(results[0].score, rel=1e-5)


def test_only_binary_beta_search_does(folder, own_layer):
    levelled = Weighting((1, 2), (1.0, 0.5), idf_exponent=1.0, theta_blend=0.5)
    for weighting, same in ((levelled, True), ("binary", False)):
        stores = [SiDR.from_texts(TEXTS, model=m, backend="numpy", weighting=weighting) for m in (folder, own_layer)]
        texts = [[[r.passage.text for r in hits] for hits in sidr.search(QUESTIONS, k=40)] for sidr in stores]
        assert (texts[0] == texts[1]) is same
        first, second = (sidr.search(QUESTIONS, search="full", k=5) for sidr in stores)
        assert [[r.score for r in hits] for hits in first] == [[r.score for r in hits] for hits in second]
        for sidr in stores:
            sidr.close()


def test_what_is_read_again_is_judged_by_the_layers_of_all_else(own_layer):
    with SiDR.from_texts(TEXTS, model=own_layer, backend="numpy", weighting="binary") as sidr:
        late = sidr.search(QUESTIONS[0], k=5, rerank=40, reranker="theta")
        theta = sidr.encoder.encode_queries(QUESTIONS[:1], max_active_dims=ALL).row(0)
        by_dim = dict(zip(*map(np.ndarray.tolist, theta), strict=True))
        for result in late:
            dims, weights = sidr.encoder.encode_passages([result.passage.text], max_active_dims=ALL).row(0)
            score = sum(by_dim.get(d, 0.0) * w for d, w in zip(dims.tolist(), weights.tolist(), strict=True))
            assert result.score == pytest.approx(score, rel=2e-2)  # kept embeddings are rounded
