"""The vector store inside LlamaIndex: index, ingestion, query engines, fusion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llama_index.core import MockEmbedding, Settings, StorageContext, VectorStoreIndex
from llama_index.core.ingestion import DocstoreStrategy, IngestionCache, IngestionPipeline
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever, VectorIndexRetriever
from llama_index.core.schema import BaseNode, Document, IndexNode, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.retrievers.sidr import NoEmbedding, SiDRRetriever, SiDRVectorStore

from sidr_rag import InvalidInputError

LEXICAL: dict[str, Any] = {"weighting": "binary", "first_stage": "lexical"}
TEXTS = ["The heart pumps blood.", "Copper conducts electricity.", "Falcons hunt by day."]


def documents_of(*texts: str) -> list[Document]:
    return [Document(text=text, id_=f"d{i}") for i, text in enumerate(texts)]


def texts_found(retriever: Any, query: str) -> list[str]:
    return [found.node.get_content() for found in retriever.retrieve(query)]


class TestIndex:
    def test_documents_are_inserted_updated_refreshed_and_deleted(self) -> None:
        index = SiDRVectorStore(**LEXICAL).as_index()
        for document in documents_of(*TEXTS):
            index.insert(document)
        assert texts_found(index.as_retriever(), "copper") == [TEXTS[1]]
        index.update_ref_doc(Document(text="Copper is red.", id_="d1"))
        assert texts_found(index.as_retriever(similarity_top_k=9), "copper") == ["Copper is red."]
        now = [*documents_of(TEXTS[0], "Copper is red."), Document(text="Iron is grey.", id_="d3")]
        assert index.refresh_ref_docs(now) == [False, False, True]
        index.delete_ref_doc("d1")
        assert texts_found(index.as_retriever(), "copper") == []
        assert len(index.vector_store.engine) == 3  # type: ignore[attr-defined]

    async def test_the_same_without_blocking(self) -> None:
        index = SiDRVectorStore(**LEXICAL).as_index()
        for document in documents_of(*TEXTS):
            await index.ainsert(document)
        found = await index.as_retriever().aretrieve("copper")
        assert [f.node.get_content() for f in found] == [TEXTS[1]]
        await index.adelete_ref_doc("d1")
        assert await index.as_retriever().aretrieve("copper") == []

    def test_given_nodes_and_a_storage_context(self, tmp_path: Path) -> None:
        store = SiDRVectorStore(**LEXICAL)
        context = StorageContext.from_defaults(vector_store=store)
        index = store.as_index(nodes=[TextNode(text="copper", id_="n")], storage_context=context)
        assert index.storage_context is context
        context.persist(tmp_path)
        again = SiDRVectorStore.from_persist_dir(tmp_path).as_index()
        assert texts_found(again.as_retriever(), "copper") == ["copper"]
        again.vector_store.close()  # type: ignore[attr-defined]
        with pytest.raises(InvalidInputError, match="storage_context has another vector store"):
            store.as_index(storage_context=StorageContext.from_defaults(vector_store=SimpleVectorStore()))

    def test_the_frameworks_own_index_with_no_embedding(self) -> None:
        store = SiDRVectorStore(**LEXICAL)
        context = StorageContext.from_defaults(vector_store=store)
        index = VectorStoreIndex.from_documents(
            documents_of(*TEXTS), storage_context=context, embed_model=NoEmbedding(), use_async=True
        )
        assert texts_found(index.as_retriever(), "falcons") == [TEXTS[2]]
        reopened = VectorStoreIndex.from_vector_store(store, embed_model=NoEmbedding())
        assert texts_found(reopened.as_retriever(vector_store_query_mode="text_search"), "falcons") == [TEXTS[2]]

    def test_no_embedding_model_is_ever_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(self: Any) -> None:
            raise AssertionError("an embedding model was asked for")

        monkeypatch.setattr(type(Settings), "embed_model", property(refuse))
        store = SiDRVectorStore(**LEXICAL)
        index = store.as_index()
        index.insert(Document(text="copper"))
        assert texts_found(index.as_retriever(), "copper") == ["copper"]
        store.as_pipeline([SentenceSplitter()]).run(documents=[Document(text="copper wire")])
        assert len(store.engine) == 2

    def test_index_nodes_lead_on_and_do_not_hide_the_others(self) -> None:
        inner = SiDRRetriever.from_defaults([TextNode(text="inside the copper", id_="inside")])
        index = SiDRVectorStore(**LEXICAL).as_index()
        index.insert_nodes(
            [
                TextNode(text="copper wire", id_="plain"),
                IndexNode(text="copper mine", index_id="mine", id_="leads", obj=inner),
                IndexNode(text="copper coin", index_id="coin", id_="coin", obj=TextNode(text="a penny", id_="penny")),
            ]
        )
        found = index.as_retriever(similarity_top_k=5).retrieve("copper")
        assert [f.node.node_id for f in found] == ["plain", "inside", "penny"]
        only = VectorIndexRetriever(index, node_ids=["plain"])
        assert [f.node.node_id for f in only.retrieve("copper")] == ["plain"]

    def test_retriever_arguments_reach_the_store(self) -> None:
        store = SiDRVectorStore(**LEXICAL)
        store.add([TextNode(text="copper", id_=f"n{i}", metadata={"page": i}) for i in range(6)])
        index = store.as_index()
        filters = MetadataFilters(filters=[MetadataFilter(key="page", value=2, operator=">")])
        retriever = index.as_retriever(similarity_top_k=2, filters=filters, vector_store_kwargs={"min_score": 1.0})
        assert [f.node.node_id for f in retriever.retrieve("copper")] == ["n3", "n4"]
        high = index.as_retriever(vector_store_kwargs={"min_score": 1.5})
        assert high.retrieve("copper") == []


class TestPipeline:
    def test_nodes_arrive_although_they_have_no_embedding(self) -> None:
        dropped = SiDRVectorStore(**LEXICAL)
        IngestionPipeline(transformations=[SentenceSplitter()], vector_store=dropped).run(
            documents=documents_of(*TEXTS)
        )
        assert len(dropped.engine) == 0  # what the helper is for
        store = SiDRVectorStore(**LEXICAL)
        nodes = store.as_pipeline([SentenceSplitter()]).run(documents=documents_of(*TEXTS))
        assert sorted(store.engine.ids()) == sorted(node.node_id for node in nodes)
        assert store.as_pipeline().run(documents=[Document(text="river")])
        assert len(store.engine) == 4
        by_hand = IngestionPipeline(transformations=[SentenceSplitter(), NoEmbedding()], vector_store=store)
        by_hand.run(documents=[Document(text="stone")])
        assert len(store.engine) == 5

    def test_an_embedding_of_ones_own_is_left_in_place(self) -> None:
        pipeline = SiDRVectorStore().as_pipeline([SentenceSplitter(), MockEmbedding(embed_dim=2)])
        assert [type(step) for step in pipeline.transformations] == [SentenceSplitter, MockEmbedding]

    @pytest.mark.parametrize("strategy", list(DocstoreStrategy))
    def test_docstore_strategies(self, strategy: DocstoreStrategy) -> None:
        store = SiDRVectorStore(**LEXICAL)
        pipeline = store.as_pipeline([SentenceSplitter()], docstore=SimpleDocumentStore(), docstore_strategy=strategy)
        pipeline.run(documents=documents_of(*TEXTS))
        before = set(store.engine.ids())
        assert pipeline.run(documents=documents_of(*TEXTS)) == []
        assert set(store.engine.ids()) == before
        pipeline.run(documents=documents_of(TEXTS[0], "Copper is red."))
        retriever = SiDRRetriever(store.engine, first_stage="lexical", similarity_top_k=9)
        upsert = strategy != DocstoreStrategy.DUPLICATES_ONLY
        assert texts_found(retriever, "copper") == (["Copper is red."] if upsert else [TEXTS[1], "Copper is red."])
        gone = strategy == DocstoreStrategy.UPSERTS_AND_DELETE
        assert texts_found(retriever, "falcons") == ([] if gone else [TEXTS[2]])
        assert texts_found(retriever, "heart") == [TEXTS[0]]

    async def test_the_same_without_blocking(self) -> None:
        store = SiDRVectorStore(**LEXICAL)
        pipeline = store.as_pipeline(
            [SentenceSplitter()], docstore=SimpleDocumentStore(), docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE
        )
        await pipeline.arun(documents=documents_of(*TEXTS))
        await pipeline.arun(documents=documents_of("Copper is red."))
        assert [node.get_content() for node in store.get_nodes()] == ["Copper is red."]

    def test_a_cache_gives_the_same_nodes(self) -> None:
        cache = IngestionCache()
        first, second = SiDRVectorStore(), SiDRVectorStore()
        for store in (first, second):
            store.as_pipeline([SentenceSplitter()], cache=cache).run(documents=documents_of(*TEXTS))
        assert second.engine.ids() == first.engine.ids()


class TestQueryEngines:
    def test_of_an_index(self) -> None:
        index = SiDRVectorStore().as_index(nodes=[TextNode(text=text) for text in TEXTS])
        response = index.as_query_engine(llm=MockLLM(), similarity_top_k=1).query("Which organ moves blood?")
        assert [source.node.get_content() for source in response.source_nodes] == [TEXTS[0]]
        assert TEXTS[0] in str(response)

    async def test_with_a_postprocessor_without_blocking(self) -> None:
        store = SiDRVectorStore(**LEXICAL)
        store.add([TextNode(text="copper wire", id_="both"), TextNode(text="copper", id_="one")])
        engine = RetrieverQueryEngine.from_args(
            store.as_index().as_retriever(similarity_top_k=5),
            llm=MockLLM(),
            node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=1.5)],
        )
        response = await engine.aquery("copper wire")
        assert [source.node.node_id for source in response.source_nodes] == ["both"]


class TestFusion:
    @pytest.mark.parametrize("use_async", [False, True])
    @pytest.mark.parametrize("mode", ["reciprocal_rerank", "relative_score", "dist_based_score", "simple"])
    def test_nodes_found_twice_are_one(self, mode: str, use_async: bool) -> None:
        nodes: list[BaseNode] = [TextNode(text=text, id_=f"n{i}", metadata={"page": i}) for i, text in enumerate(TEXTS)]
        store = SiDRVectorStore()
        store.add(nodes)
        retrievers = [
            SiDRRetriever(store.engine, similarity_top_k=3),
            store.as_index().as_retriever(similarity_top_k=3, vector_store_query_mode="text_search"),
            VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=2)).as_retriever(similarity_top_k=3),
        ]
        fused = QueryFusionRetriever(
            retrievers, llm=MockLLM(), mode=mode, num_queries=1, similarity_top_k=9, use_async=use_async
        )
        found = [f.node.node_id for f in fused.retrieve("Does copper conduct electricity?")]
        assert sorted(found) == ["n0", "n1", "n2"]
        if mode == "reciprocal_rerank":
            assert found[0] == "n1"

    async def test_generated_queries_without_blocking(self) -> None:
        retriever = SiDRRetriever.from_defaults([TextNode(text=text) for text in TEXTS], similarity_top_k=1)
        fused = QueryFusionRetriever(
            [retriever], llm=MockLLM(max_tokens=4), mode="reciprocal_rerank", num_queries=3, similarity_top_k=1
        )
        found = await fused.aretrieve("Which organ moves blood?")
        assert [f.node.get_content() for f in found] == [TEXTS[0]]
