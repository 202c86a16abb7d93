"""A model may search its binary index with fewer dimensions of a question than it has elsewhere."""

import importlib.util
from pathlib import Path

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
