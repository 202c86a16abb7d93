"""Explanations and costs in the metadata of found nodes, on request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.retrievers.sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import InvalidInputError, InvalidTypeError, SiDR

TEXTS = ["The heart pumps blood through the body.", "Copper conducts electricity.", "Blood is red, as copper is."]
IDS = ["heart", "copper", "red"]
QUESTION = "Which organ moves blood?"
KEYS = {"sidr_explanation", "sidr_costs"}
BOTH: dict[str, Any] = {"explain": True, "costs": True}


def given() -> list[BaseNode]:
    return [TextNode(text=text, id_=name, metadata={"n": 1}) for text, name in zip(TEXTS, IDS, strict=True)]


@pytest.fixture(scope="module")
def engine() -> SiDR:
    return SiDRRetriever.from_defaults(given()).engine


def check_told(found: Sequence[NodeWithScore], search: str = "beta") -> None:
    assert len(found) >= 2
    for hit in found:
        told = {key: hit.node.metadata[key] for key in KEYS}
        assert json.loads(json.dumps(told)) == told
        why, costs = told["sidr_explanation"], told["sidr_costs"]
        assert (why["passage_id"], why["search"], why["score"]) == (hit.node.node_id, search, hit.score)
        assert sum(part["contribution"] for part in why["parts"]) == pytest.approx(hit.score, rel=1e-5)
        assert (costs["searches"], costs["queries"]) == (1, 1)


@pytest.mark.parametrize("search", ["beta", "full"])
async def test_what_is_told_is_the_engine_s(engine: SiDR, search: str) -> None:
    retriever = SiDRRetriever(engine, search=search, **BOTH)
    for found in (retriever.retrieve(QUESTION), await retriever.aretrieve(QUESTION)):
        check_told(found, search)
        best = found[0].node
        expected = engine.explain(QUESTION, best.node_id, search=search).to_dict()
        assert best.metadata["sidr_explanation"] == expected


def test_models_never_read_it_and_the_store_never_keeps_it(engine: SiDR) -> None:
    retriever = SiDRRetriever(engine)
    plain = retriever.retrieve(QUESTION)
    assert all(KEYS.isdisjoint(hit.node.metadata) for hit in plain)
    retriever.explain = retriever.costs = True
    told = retriever.retrieve(QUESTION)
    for one, other in zip(told, plain, strict=True):
        for mode in (MetadataMode.EMBED, MetadataMode.LLM):
            assert one.node.get_content(mode) == other.node.get_content(mode)
    retriever.explain = retriever.costs = False
    assert retriever.retrieve(QUESTION) == plain


def test_costs_of_re_ranking_are_told() -> None:
    retriever = SiDRRetriever.from_defaults(given(), rerank=2, reranker="theta", costs=True)
    cold, warm = (retriever.retrieve(QUESTION)[0].node.metadata["sidr_costs"] for _ in range(2))
    assert (cold["passages"], cold["cache_hits"], cold["texts"]) == (2, 0, 3)
    assert (warm["passages"], warm["cache_hits"], warm["texts"]) == (0, 2, 1)


def test_every_mode_of_the_vector_store(engine: SiDR) -> None:
    store = SiDRVectorStore(engine)
    for mode in ("default", "sparse", "text_search", "mmr"):
        query = VectorStoreQuery(query_str="copper blood", similarity_top_k=3, mode=mode)
        result = store.query(query, **BOTH)
        assert result.nodes
        assert result.similarities
        found = [NodeWithScore(node=n, score=s) for n, s in zip(result.nodes, result.similarities, strict=True)]
        assert all(hit.node.metadata["sidr_explanation"]["score"] == hit.score for hit in found)
        assert KEYS.isdisjoint(store.query(query).nodes[0].metadata)
    found = store.as_index().as_retriever(vector_store_kwargs=BOTH).retrieve(QUESTION)
    check_told(found)
    hybrid = VectorStoreQuery(query_str="copper blood", mode="hybrid")
    assert store.query(hybrid, costs=True).nodes[0].metadata["sidr_costs"]["searches"] == 1
    with pytest.raises(InvalidInputError, match="no parts by token"):
        store.query(hybrid, explain=True)


def test_options_are_kept_and_checked(tmp_path: Path) -> None:
    SiDRRetriever.from_defaults(given(), path=tmp_path / "s", **BOTH).close()
    again = SiDRRetriever.from_persist_dir(tmp_path / "s", costs=False)
    assert (again.explain, again.costs) == (True, False)
    again.close()
    store = SiDRVectorStore(**BOTH)
    store.add(given())
    store.persist(tmp_path / "v")
    opened = SiDRVectorStore.from_persist_path(tmp_path / "v")
    result = opened.query(VectorStoreQuery(query_str=QUESTION, similarity_top_k=1))
    assert result.nodes
    assert result.nodes[0].metadata.keys() >= KEYS
    for name in BOTH:
        for value in (1, "yes", None):
            with pytest.raises(InvalidTypeError, match=f"{name}={value!r} must be True or False"):
                SiDRRetriever.from_defaults(given(), **{name: value})
            with pytest.raises(InvalidTypeError, match=f"{name}={value!r} must be True or False"):
                SiDRVectorStore(opened.engine, **{name: value})
    opened.engine.close()


def test_a_node_that_goes_meanwhile_has_no_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = SiDRRetriever.from_defaults(given(), explain=True)
    search = retriever.engine.search

    def then_delete(query: str, **arguments: Any) -> Any:
        results = search(query, **arguments)
        retriever.engine.delete(["heart"])
        return results

    monkeypatch.setattr(retriever.engine, "search", then_delete)
    told = {hit.node.node_id: hit.node.metadata["sidr_explanation"] for hit in retriever.retrieve(QUESTION)}
    assert told["heart"] is None
    assert told["red"]["parts"]
