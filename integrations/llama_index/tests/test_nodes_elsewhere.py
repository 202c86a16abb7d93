"""Retriever and vector store over Qdrant, Milvus and several folders: used as over a local store, same results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, Document, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.retrievers.sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import SiDR

KINDS = ["qdrant", "milvus", "sharded"]
QUESTION = "Which metal conducts a current?"
TEXTS = {
    "copper": "Copper conducts electricity.",
    "wire": "A wire carries the current.",
    "falcons": "Falcons hunt by day.",
    "river": "The current of the river carries stones.",
}
LATER = MetadataFilters(filters=[MetadataFilter(key="page", value=1, operator=FilterOperator.GT)])


def given() -> list[BaseNode]:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book")}
    hidden = ["page"]
    return [
        TextNode(
            text=text, id_=name, metadata={"page": page}, relationships=source, excluded_embed_metadata_keys=hidden
        )
        for page, (name, text) in enumerate(TEXTS.items(), start=1)
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
def beside(tmp_path: Path) -> Iterator[Callable[[str], tuple[SiDR, SiDR]]]:
    """A function (kind) -> an empty engine of the kind, and a local one in memory."""
    engines: list[SiDR] = []

    def make(kind: str) -> tuple[SiDR, SiDR]:
        engines.append(SiDR.open(place(kind, tmp_path), create=True))
        engines.append(SiDR.from_texts([]))
        return engines[-2], engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_insert_retrieve_filter_delete(kind: str, beside: Callable[[str], tuple[SiDR, SiDR]]) -> None:
    engines = beside(kind)
    other, local = (SiDRRetriever(engine) for engine in engines)
    for retriever in (other, local):
        assert retriever.insert_nodes(given()) == list(TEXTS)
        retriever.insert_nodes([TextNode(text="Falcons rest at night.", id_="falcons")])
    variants: list[dict[str, Any]] = [{}, {"filters": LATER}, {"rerank": 3}, {"first_stage": "lexical"}]
    for options in (*variants, {"explain": True}):
        found, expected = (SiDRRetriever(engine, **options).retrieve(QUESTION) for engine in engines)
        assert found == expected
        assert found
    assert await other.aretrieve(QUESTION) == local.retrieve(QUESTION)
    indexes = [SiDRVectorStore(engine).as_index() for engine in engines]
    found, expected = (index.as_retriever(filters=LATER, doc_ids=["book"]).retrieve(QUESTION) for index in indexes)
    assert found == expected
    assert [hit.node.node_id for hit in found] == ["wire", "river"]
    assert other.get_nodes(["falcons", "absent"]) == local.get_nodes(["falcons"])
    for retriever in (other, local):
        assert retriever.delete_nodes(["copper", "absent"]) == 1
    assert other.retrieve(QUESTION) == local.retrieve(QUESTION)
    for index in indexes:
        index.delete_ref_doc("book")
    assert other.engine.ids() == ["falcons"]


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_refreshed(kind: str, beside: Callable[[str], tuple[SiDR, SiDR]]) -> None:
    document = Document(text="Parcels arrive in two days.", id_="shipping.md")
    changed = Document(text="Parcels arrive in three days.", id_="shipping.md")
    for engine in beside(kind):
        retriever = SiDRRetriever(engine)
        nodes = given()
        retriever.insert_nodes(nodes)
        assert [retriever.refresh_ref_docs([given_now]) == [True] for given_now in (document, document, changed)] == [
            True,
            False,
            True,
        ]
        [best] = retriever.retrieve("three days")[:1]
        assert best.node.get_content() == changed.text
        assert len(engine) == len(TEXTS) + 1
        done = retriever.refresh_nodes(nodes[:3])
        assert (done.written, done.unchanged, done.removed) == ([], 3, ["river"])
        SiDRVectorStore(engine).clear()
        assert engine.ids() == []
