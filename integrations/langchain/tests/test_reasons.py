"""Explanations and costs in the metadata of found documents, on request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import ConfigurableField
from langchain_sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import InvalidInputError, InvalidTypeError, SiDR

TEXTS = ["The heart pumps blood through the body.", "Copper conducts electricity.", "Blood is red, as copper is."]
IDS = ["heart", "copper", "red"]
QUESTION = "Which organ moves blood?"
KEYS = {"sidr_explanation", "sidr_costs"}


@pytest.fixture(scope="module")
def engine() -> SiDR:
    return SiDR.from_texts(TEXTS, ids=IDS)


@pytest.fixture(scope="module")
def retriever(engine: SiDR) -> SiDRRetriever:
    return SiDRRetriever(engine=engine)


def check_explained(documents: Sequence[Document], scores: Sequence[float], search: str = "beta") -> None:
    assert len(documents) >= 2
    for document, score in zip(documents, scores, strict=True):
        why = document.metadata["sidr_explanation"]
        assert json.loads(json.dumps(why)) == why
        assert (why["passage_id"], why["search"]) == (document.id, search)
        assert why["score"] == pytest.approx(score, rel=1e-6)
        assert sum(part["contribution"] for part in why["parts"]) == pytest.approx(score, rel=1e-5)
    blood = [part for part in documents[0].metadata["sidr_explanation"]["parts"] if part["token"] == "blood"]
    assert blood[0]["in_query"] is True


def scores_of(documents: Sequence[Document]) -> list[float]:
    return [document.metadata["sidr_score"] for document in documents]


def test_nothing_is_told_unless_asked_for(retriever: SiDRRetriever) -> None:
    plain = retriever.invoke(QUESTION)
    assert all(KEYS.isdisjoint(document.metadata) for document in plain)
    told = retriever.invoke(QUESTION, explain=True, costs=True)
    assert [document.metadata.keys() & KEYS for document in told] == [KEYS] * len(told)
    for document in told:
        for key in KEYS:
            del document.metadata[key]
    assert told == plain
    assert all(KEYS.isdisjoint(document.metadata) for document in retriever.get_by_ids(IDS))


@pytest.mark.parametrize("search", ["beta", "full", "alpha"])
async def test_the_parts_add_up_to_the_score(retriever: SiDRRetriever, search: str) -> None:
    documents = await retriever.ainvoke(QUESTION, search=search, explain=True)
    check_explained(documents, scores_of(documents), search)
    expected = retriever.engine.explain(QUESTION, str(documents[0].id), search=search).to_dict()
    assert documents[0].metadata["sidr_explanation"] == expected


def test_options_that_shape_the_score_shape_the_explanation(retriever: SiDRRetriever) -> None:
    documents = retriever.invoke("copper blood", first_stage="lexical", explain=True)
    check_explained(documents[::-1], scores_of(documents)[::-1])
    parts = documents[0].metadata["sidr_explanation"]["parts"]
    assert {part["token"] for part in parts} <= {"copper", "blood"}
    short = retriever.invoke(QUESTION, max_active_dims=1, explain=True)
    assert all(len(document.metadata["sidr_explanation"]["parts"]) <= 1 for document in short)


def test_a_reranked_document_is_explained_by_its_first_stage(engine: SiDR, retriever: SiDRRetriever) -> None:
    documents = retriever.invoke(QUESTION, rerank=2, explain=True)
    first = {result.passage.id: result.beta_score for result in engine.search(QUESTION, rerank=2)}
    check_explained(documents, [first[str(document.id)] for document in documents])


def test_costs_are_those_of_the_search_alone() -> None:
    retriever = SiDRRetriever.from_texts(TEXTS, k=2, costs=True, explain=True)
    plain = retriever.invoke(QUESTION)[0].metadata["sidr_costs"]
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["searches"], plain["queries"], plain["passages"]) == (1, 1, 0)
    reranked = [document.metadata["sidr_costs"] for document in retriever.invoke(QUESTION, rerank=2, reranker="theta")]
    assert [(costs["queries"], costs["passages"], costs["texts"]) for costs in reranked] == [(1, 2, 3)] * 2
    assert reranked[0] is not reranked[1]
    warm = retriever.invoke(QUESTION, rerank=2, reranker="theta")[0].metadata["sidr_costs"]
    assert (warm["passages"], warm["cache_hits"]) == (0, 2)
    assert retriever.engine.costs().searches == 3


def test_given_as_attribute_field_or_option_and_kept(tmp_path: Path) -> None:
    made = SiDRRetriever.from_texts(TEXTS, path=tmp_path / "s", explain=True, costs=True)
    made.close()
    with SiDRRetriever.open(tmp_path / "s").engine as engine:
        again = SiDRRetriever(engine=engine, explain=True)
        assert "sidr_explanation" not in again.invoke(QUESTION, explain=False)[0].metadata
        field = again.configurable_fields(costs=ConfigurableField(id="costs"))
        assert field.invoke(QUESTION, {"configurable": {"costs": True}})[0].metadata.keys() >= KEYS
    kept = SiDRRetriever.open(tmp_path / "s", costs=False)
    assert (kept.explain, kept.costs) == (True, False)
    kept.close()


@pytest.mark.parametrize("name", ["explain", "costs"])
def test_values_that_are_no_flags_are_errors(retriever: SiDRRetriever, name: str) -> None:
    for value in (1, "yes", None):
        with pytest.raises(InvalidTypeError, match=f"{name}={value!r} must be True or False"):
            retriever.invoke(QUESTION, **{name: value})
        with pytest.raises(InvalidTypeError, match=f"{name}={value!r} must be True or False"):
            SiDRRetriever.from_texts(TEXTS, **{name: value})
        with pytest.raises(InvalidTypeError, match=f"{name}={value!r} must be True or False"):
            SiDRVectorStore(retriever.engine).similarity_search(QUESTION, **{name: value})


def test_a_first_stage_without_parts_is_an_error(retriever: SiDRRetriever) -> None:
    with pytest.raises(InvalidInputError, match="no parts by token"):
        retriever.invoke(QUESTION, first_stage="sidr+bm25", explain=True)
    assert retriever.invoke(QUESTION, first_stage="sidr+bm25", costs=True)[0].metadata["sidr_costs"]["queries"] == 1


def test_a_document_that_goes_meanwhile_has_no_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = SiDRRetriever.from_texts(TEXTS, ids=IDS)
    search = retriever.engine.search

    def then_delete(query: str, **arguments: Any) -> Any:
        results = search(query, **arguments)
        retriever.engine.delete(["heart"])
        return results

    monkeypatch.setattr(retriever.engine, "search", then_delete)
    explained = {d.id: d.metadata["sidr_explanation"] for d in retriever.invoke(QUESTION, explain=True)}
    assert explained["heart"] is None
    assert explained["red"]["parts"]


async def test_every_search_of_the_vector_store(engine: SiDR) -> None:
    store = SiDRVectorStore(engine, score_key="sidr_score")
    asked: dict[str, Any] = {"explain": True, "costs": True}
    for documents in (
        store.similarity_search(QUESTION, k=2, **asked),
        await store.asimilarity_search(QUESTION, k=2, **asked),
        store.max_marginal_relevance_search(QUESTION, k=2, **asked),
        store.as_retriever(search_kwargs={"k": 2, **asked}).invoke(QUESTION),
    ):
        check_explained(documents, scores_of(documents))
        assert all(document.metadata["sidr_costs"]["searches"] == 1 for document in documents)
    assert KEYS.isdisjoint(store.similarity_search(QUESTION, k=1)[0].metadata)
    binary = SiDRVectorStore.from_texts(TEXTS, weighting="binary")
    [(document, share)] = binary.similarity_search_with_relevance_scores(QUESTION, k=1, **asked)
    assert 0 < share <= 1
    assert document.metadata["sidr_explanation"]["parts"]


def test_every_first_stage_and_search_of_the_engine_can_be_the_retriever_s_own(engine: SiDR, tmp_path: Path) -> None:
    from sidr_rag.rerank.fusion import Fusion

    for first_stage in ("overlap", "bm25", "sidr+bm25", Fusion(("sidr", "lexical"))):
        found = SiDRRetriever(engine=engine, first_stage=first_stage).invoke("blood")
        expected = engine.search("blood", k=4, first_stage=first_stage)
        assert [document.id for document in found] == [result.passage.id for result in expected] != []
    automatic = SiDRRetriever(engine=engine, search="auto", first_stage=Fusion(("sidr", "lexical")))
    automatic.save(tmp_path / "s")
    again = SiDRRetriever.open(tmp_path / "s")
    assert (again.search, again.first_stage) == ("auto", "sidr")
    again.close()
    with pytest.raises(ValueError, match="first_stage"):
        SiDRRetriever(engine=engine, first_stage="bm26")
