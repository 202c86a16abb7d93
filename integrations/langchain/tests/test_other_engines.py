"""The retriever over Qdrant, Milvus and several folders: used as over a local store, with the same results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import SiDR

KINDS = ["qdrant", "milvus", "sharded"]
QUESTION = "Which metal conducts a current?"
DOCUMENTS = [
    Document("Copper conducts electricity.", id="copper", metadata={"page": 1}),
    Document("A wire carries the current.", id="wire", metadata={"page": 2}),
    Document("Falcons hunt by day.", id="falcons", metadata={"page": 3}),
    Document("The current of the river carries stones.", id="river", metadata={"page": 4}),
]


def place(kind: str, folder: Path) -> Any:
    """Where an engine of a kind keeps its passages: a client, or folders."""
    if kind == "qdrant":
        return pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    if kind == "milvus":
        pytest.importorskip("milvus_lite")
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        return pytest.importorskip("pymilvus").MilvusClient(str(folder / "passages.db"))
    return [folder / name for name in ("a", "b")]


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Callable[[str], tuple[SiDRRetriever, SiDRRetriever]]]:
    """A function (kind) -> a retriever over such an engine, and one over a local store in memory; both empty."""
    engines: list[SiDR] = []

    def make(kind: str) -> tuple[SiDRRetriever, SiDRRetriever]:
        engines.append(SiDR.open(place(kind, tmp_path), create=True))
        engines.append(SiDR.from_texts([]))
        other, local = (SiDRRetriever(engine=engine) for engine in engines[-2:])
        return other, local

    yield make
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_add_search_filter_delete(kind: str, beside: Callable[[str], Any]) -> None:
    other, local = beside(kind)
    for retriever in (other, local):
        assert retriever.add_documents(DOCUMENTS) == ["copper", "wire", "falcons", "river"]
        retriever.add_documents([Document("Falcons rest at night.", id="falcons", metadata={"page": 5})])
    searches: list[dict[str, Any]] = [{}, {"filter": {"page": {"gt": 1}}}, {"rerank": 3}, {"first_stage": "lexical"}]
    for options in (*searches, {"k": 1}, {"explain": True}):
        found = other.invoke(QUESTION, **options)
        assert found == local.invoke(QUESTION, **options)
        assert found
    assert await other.ainvoke(QUESTION) == local.invoke(QUESTION)
    stores = [SiDRVectorStore(retriever.engine) for retriever in (other, local)]
    filled, expected = (store.similarity_search_with_score(QUESTION, k=4) for store in stores)
    assert filled == expected
    assert len(filled) == 4
    assert other.get_by_ids(["falcons", "absent", "copper"]) == local.get_by_ids(["falcons", "copper"])
    for retriever in (other, local):
        assert retriever.delete(["copper", "absent"]) == {"num_deleted": 1}
    assert other.invoke(QUESTION) == local.invoke(QUESTION)
    assert "copper" not in [document.id for document in other.invoke(QUESTION)]
    assert len(other.engine) == 3
