"""What the retriever alone does; situations from public reports (R55 and R56 among them) are in test_node_cases.py."""

from __future__ import annotations

import contextlib
import datetime
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import llama_index
import llama_index.retrievers.sidr
import pytest
from llama_index.core import MockEmbedding, SummaryIndex, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.query_engine import CitationQueryEngine, RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.schema import (
    BaseNode,
    Document,
    IndexNode,
    NodeRelationship,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.retrievers.sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import IndexFormatError, InvalidInputError, InvalidTypeError, SiDR


def lexical(nodes: Sequence[BaseNode] | None = None, **options: Any) -> SiDRRetriever:
    """A retriever whose query vector is 1 on the question's own tokens, so that every score can be told."""
    return SiDRRetriever.from_defaults(nodes, weighting="binary", first_stage="lexical", **options)


def text_nodes(*texts: str) -> list[BaseNode]:
    return [TextNode(text=text, id_=f"n{i}") for i, text in enumerate(texts)]


def of_document(doc_id: str, *texts: str) -> list[BaseNode]:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc_id)}
    return [TextNode(text=text, id_=f"{doc_id}-{i}", relationships=source) for i, text in enumerate(texts)]


def found_ids(retriever: SiDRRetriever, query: str) -> list[str]:
    return [found.node.node_id for found in retriever.retrieve(query)]


def test_public_names_and_namespace() -> None:
    assert llama_index.retrievers.sidr.__all__ == [
        "NoEmbedding",
        "SiDRRetriever",
        "SiDRSparseEmbedding",
        "SiDRVectorStore",
        "__version__",
        "pack_nodes",
    ]
    assert issubclass(SiDRRetriever, BaseRetriever)
    assert getattr(llama_index, "__file__", None) is None
    assert getattr(llama_index.retrievers, "__file__", None) is None


def test_results_are_the_engines() -> None:
    nodes = text_nodes("The heart pumps blood.", "Copper conducts electricity.", "Blood is red copper.")
    retriever = SiDRRetriever.from_defaults(nodes, similarity_top_k=2, rerank=3)
    expected = retriever.engine.search("copper blood", k=2, rerank=3)
    found = retriever.retrieve(QueryBundle("copper blood"))
    assert [(f.node.node_id, f.score) for f in found] == [(r.passage.id, r.score) for r in expected]
    assert [f.node for f in found] == [nodes[int(r.passage.id[1:])] for r in expected]


class TestOptions:
    def test_every_option_reaches_the_engine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[dict[str, Any]] = []
        monkeypatch.setattr(SiDR, "search", lambda self, query, **arguments: seen.append(arguments) or [])
        retriever = SiDRRetriever.from_defaults(
            similarity_top_k=3,
            rerank=9,
            filters=MetadataFilters(filters=[MetadataFilter(key="page", value=3)]),
            min_score=0.5,
            reranker="theta",
            first_stage="lexical",
            query_repr="lex",
            max_active_dims=7,
            weight_floor=0.1,
        )
        retriever.retrieve("a")
        assert seen == [
            {
                "k": 3,
                "rerank": 9,
                "search": "beta",
                "filter": {"and": [{"path": ["page"], "eq": 3}]},
                "min_score": 0.5,
                "reranker": "theta",
                "first_stage": "lexical",
                "query_repr": "lex",
                "max_active_dims": 7,
                "weight_floor": 0.1,
            }
        ]

    def test_defaults_and_changes(self) -> None:
        retriever = lexical(text_nodes("copper a", "copper b", "copper c"))
        assert found_ids(retriever, "copper") == ["n0", "n1"]
        retriever.similarity_top_k = 20
        assert found_ids(retriever, "copper") == ["n0", "n1", "n2"]

    @pytest.mark.parametrize("k", [-1, "5", 2.5, True])
    def test_a_wrong_k_is_named(self, k: Any) -> None:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=f"similarity_top_k={k!r}"):
            SiDRRetriever.from_defaults(text_nodes("copper"), similarity_top_k=k)
        retriever = lexical()
        retriever.similarity_top_k = k
        with pytest.raises((InvalidInputError, InvalidTypeError), match=f"similarity_top_k={k!r}"):
            retriever.retrieve("copper")

    def test_wrong_options_are_named_and_store_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidTypeError, match="unknown options 'topk'"):
            SiDRRetriever.from_defaults(topk=3)
        with pytest.raises(InvalidTypeError, match="unknown options 'topk'"):
            SiDRRetriever(lexical().engine, topk=3)
        with pytest.raises(InvalidInputError, match="search='gamma'"):
            SiDRRetriever.from_defaults(text_nodes("a"), path=tmp_path / "s", search="gamma")
        assert not (tmp_path / "s").exists()
        with pytest.raises(InvalidTypeError, match="filters is a list"):
            SiDRRetriever.from_defaults(filters=[{"page": 3}])  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="unknown operator 'above'"):
            SiDRRetriever.from_defaults(filters={"page": {"above": 3}})
        with pytest.raises(InvalidTypeError, match="engine is a list; give a SiDR"):
            SiDRRetriever(text_nodes("a"))  # type: ignore[arg-type]


class TestSources:
    def test_of_an_index_and_of_a_document_store(self) -> None:
        nodes = text_nodes("copper wire", "falcon nest")
        index = SummaryIndex(nodes)
        for options in ({"index": index}, {"docstore": index.docstore}):
            retriever = lexical(**options)
            assert [f.node for f in retriever.retrieve("copper")] == [nodes[0]]
            assert len(retriever.engine) == 2
        dense = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=2))
        assert sorted(SiDRRetriever.from_defaults(index=dense).engine.ids()) == ["n0", "n1"]
        assert lexical(docstore=SimpleDocumentStore()).retrieve("copper") == []

    def test_only_one_of_them(self) -> None:
        with pytest.raises(InvalidInputError, match="nodes and docstore are given; give one"):
            SiDRRetriever.from_defaults(text_nodes("a"), docstore=SimpleDocumentStore())

    def test_an_index_that_keeps_no_nodes_is_told(self) -> None:
        index = SiDRVectorStore().as_index(nodes=text_nodes("copper"))
        with pytest.raises(InvalidInputError, match=r"SiDRVectorStore.*index\.vector_store\.engine"):
            SiDRRetriever.from_defaults(index=index)
        assert found_ids(SiDRRetriever(index.vector_store.engine), "copper") == ["n0"]  # type: ignore[attr-defined]


class TestEdges:
    def test_metadata_that_is_not_json_names_the_node(self) -> None:
        retriever = lexical(text_nodes("kept"))
        bad = TextNode(text="a", id_="x7", metadata={"when": datetime.date(2024, 1, 1)})
        with pytest.raises(InvalidTypeError, match="'x7' holds a date"):
            retriever.insert_nodes([TextNode(text="fine"), bad])
        assert retriever.engine.ids() == ["n0"]


class TestDocuments:
    def test_nodes_by_id_and_filter(self) -> None:
        nodes: list[BaseNode] = [TextNode(text="copper", id_=f"n{i}", metadata={"page": i}) for i in range(5)]
        retriever = lexical(nodes)
        late = MetadataFilters(filters=[MetadataFilter(key="page", value=2, operator=FilterOperator.GTE)])
        assert retriever.get_nodes(["n3", "absent", "n0"]) == [nodes[3], nodes[0]]
        assert retriever.get_nodes() == nodes
        assert retriever.get_nodes(filters=late) == nodes[2:]
        assert retriever.get_nodes(["n3", "n0"], late) == [nodes[3]]
        assert retriever.delete_nodes(["n3", "n0"], late) == 1
        assert retriever.delete_nodes(filters=late) == 2
        assert retriever.engine.ids() == ["n0", "n1"]
        with pytest.raises(InvalidInputError, match="give the ids to delete"):
            retriever.delete_nodes()

    def test_a_document_is_replaced_in_one_commit(self) -> None:
        retriever = lexical([*of_document("D1", "apple one", "apple two"), *of_document("D2", "pear")])
        states = []
        commit = retriever.engine._store._writer._writing

        @contextlib.contextmanager
        def watched() -> Iterator[Any]:
            with commit() as change:
                yield change
            states.append(sorted(retriever.engine.ids()))

        retriever.engine._store._writer._writing = watched  # type: ignore[method-assign]
        new = [of_document("D1", "apple one", "x")[0], *of_document("D3", "plum")]
        done = retriever.refresh_nodes([*new, TextNode(text="no document", id_="free")])
        assert states == [["D1-0", "D2-0", "D3-0", "free"]]
        assert (done.written, done.unchanged, done.removed) == (["D3-0", "free"], 1, ["D1-1"])
        assert retriever.refresh_nodes([]).removed == []

    def test_documents_are_refreshed_by_hash(self) -> None:
        splitter = TokenTextSplitter(chunk_size=20, chunk_overlap=0)
        documents = [
            Document(id_="a", text="An apple is red. " * 8),
            Document(id_="b", text="One pear is green."),
            Document(id_="c", text="One plum is blue."),
        ]
        retriever = lexical(similarity_top_k=20)
        assert retriever.refresh_ref_docs(documents[:2], [splitter]) == [True, True]
        kept = {node.node_id for node in retriever.get_nodes()}
        assert len(kept) > 3
        assert retriever.refresh_ref_docs(documents, [splitter]) == [False, False, True]
        assert kept < {node.node_id for node in retriever.get_nodes()}
        changed = [documents[0], Document(id_="b", text="One cherry is red."), documents[2]]
        assert retriever.refresh_ref_docs(changed, [splitter]) == [False, True, False]
        assert retriever.retrieve("pear") == []
        assert [f.node.ref_doc_id for f in retriever.retrieve("cherry")] == ["b"]
        # Metadata count, and of equal ids the last does.
        both = [Document(id_="b", text="A lemon."), Document(id_="b", text="One cherry is red.", metadata={"page": 1})]
        assert retriever.refresh_ref_docs(both, [splitter]) == [True, True]
        assert [node.metadata for node in retriever.get_nodes(filters={"page": 1})] == [{"page": 1}]
        assert retriever.retrieve("lemon") == []
        # Without a splitter the document itself is the node; by default there is one.
        assert retriever.refresh_ref_docs([Document(id_="d", text="A river.")], []) == [True]
        assert (
            retriever.refresh_ref_docs([Document(id_="d", text="A river."), Document(id_="e", text="A stone.")])[0]
            is False
        )
        assert [type(f.node) for f in retriever.retrieve("river stone")] == [Document, TextNode]
        assert retriever.delete_ref_doc("d") == 1

    def test_what_is_no_document_changes_nothing(self) -> None:
        retriever = lexical(text_nodes("copper"))
        with pytest.raises(InvalidTypeError, match=r"documents\[1\] is a TextNode"):
            retriever.refresh_ref_docs([Document(text="a"), TextNode(text="b")])  # type: ignore[list-item]
        with pytest.raises(InvalidTypeError, match="nodes is a str"):
            retriever.refresh_nodes("text")  # type: ignore[arg-type]
        assert retriever.engine.ids() == ["n0"]

    def test_ref_doc_id_of_another_type(self) -> None:
        with pytest.raises(InvalidTypeError, match="ref_doc_id is a list"):
            lexical().delete_ref_doc(["D1"])  # type: ignore[arg-type]


class TestKeeping:
    def test_nodes_are_whole_after_reopening(self, tmp_path: Path) -> None:
        node = TextNode(
            text="copper 東京 🚀",
            id_="é",
            metadata={"page": 3, "tags": ["ü"]},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="D1", metadata={"z": 1})},
            start_char_idx=4,
        )
        SiDRRetriever.from_defaults([node], path=tmp_path / "store").close()
        filters = MetadataFilters(filters=[MetadataFilter(key="page", value=3)])
        retriever = SiDRRetriever.from_persist_dir(tmp_path / "store", filters=filters)
        assert [found.node for found in retriever.retrieve("copper")] == [node]
        retriever.persist(tmp_path / "store")
        with pytest.raises(IndexFormatError, match="overwrite=True"):
            SiDRRetriever.from_defaults([node], path=tmp_path / "store")

    def test_a_folder_that_is_no_store(self, tmp_path: Path) -> None:
        with pytest.raises(IndexFormatError):
            SiDRRetriever.from_persist_dir(tmp_path)

    def test_an_engines_own_passages_become_text_nodes(self) -> None:
        engine = SiDR.from_texts(["copper wire"], ids=["p"], metadatas=[{"page": 1}])
        found = SiDRRetriever(engine).retrieve("copper")
        assert [(f.node.node_id, f.node.metadata, f.node.get_content()) for f in found] == [
            ("p", {"page": 1}, "copper wire")
        ]


class Notes(BaseEventHandler):
    """Remembers the kinds of events."""

    seen: list[type] = []  # noqa: RUF012

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self.seen.append(type(event))


class TestInLlamaIndex:
    def test_query_engine(self) -> None:
        nodes = text_nodes("The heart pumps blood.", "Copper conducts electricity.")
        engine = RetrieverQueryEngine.from_args(
            SiDRRetriever.from_defaults(nodes, similarity_top_k=1), llm=MockLLM(), response_mode=ResponseMode.COMPACT
        )
        response = engine.query("Which organ moves blood?")
        assert [source.node for source in response.source_nodes] == [nodes[0]]
        assert "The heart pumps blood." in str(response)
        assert "Copper" not in str(response)

    async def test_query_engine_without_blocking(self) -> None:
        nodes = text_nodes("The heart pumps blood.", "Copper conducts electricity.")
        engine = RetrieverQueryEngine.from_args(SiDRRetriever.from_defaults(nodes, similarity_top_k=1), llm=MockLLM())
        response = await engine.aquery("Which organ moves blood?")
        assert [source.node.node_id for source in response.source_nodes] == ["n0"]

    def test_citation_query_engine(self) -> None:
        nodes = text_nodes("The heart pumps blood.", "Blood is red.")
        engine = CitationQueryEngine(SiDRRetriever.from_defaults(nodes), llm=MockLLM())
        response = engine.query("What does blood do?")
        assert len(response.source_nodes) == 2
        assert all(source.node.get_content().startswith("Source ") for source in response.source_nodes)

    def test_an_index_node_leads_on_to_its_object(self, tmp_path: Path) -> None:
        inner = lexical(text_nodes("copper inside"))
        outer = lexical([IndexNode(text="all about copper", index_id="inner", obj=inner)], path=tmp_path / "s")
        assert [f.node.get_content() for f in outer.retrieve("copper")] == ["copper inside"]
        outer.insert_nodes([IndexNode(text="all about falcons", index_id="birds", obj=TextNode(text="a nest"))])
        assert [f.node.get_content() for f in outer.retrieve("falcons")] == ["a nest"]
        outer.close()
        objects = [IndexNode(text="", index_id="inner", obj=inner)]
        reopened = SiDRRetriever.from_persist_dir(tmp_path / "s", first_stage="lexical", objects=objects)
        assert [f.node.get_content() for f in reopened.retrieve("copper")] == ["copper inside"]
        assert [f.node.get_content() for f in reopened.retrieve("falcons")] == ["all about falcons"]

    def test_whole_documents(self) -> None:
        documents: list[BaseNode] = [Document(text="copper wire", id_="d1"), Document(text="falcon nest", id_="d2")]
        retriever = lexical(documents)
        (found,) = retriever.retrieve("falcon")
        assert found.node == documents[1]

    def test_instrumentation_events(self) -> None:
        notes = Notes()
        dispatcher = get_dispatcher()
        dispatcher.add_event_handler(notes)
        try:
            lexical(text_nodes("copper")).retrieve("copper")
        finally:
            dispatcher.event_handlers.remove(notes)
        assert [kind for kind in notes.seen if kind in (RetrievalStartEvent, RetrievalEndEvent)] == [
            RetrievalStartEvent,
            RetrievalEndEvent,
        ]


class TestPickling:
    def test_over_a_folder(self, tmp_path: Path) -> None:
        inner = [IndexNode(text="all about copper", index_id="i", obj=TextNode(text="inside", id_="inside"))]
        options = {"similarity_top_k": 3, "rerank": 2, "filters": MetadataFilters(filters=[])}
        with contextlib.closing(lexical(inner, path=tmp_path / "s", **options)) as retriever:
            expected = retriever.retrieve("copper")
            assert expected[0].node.node_id == "inside"
            with contextlib.closing(pickle.loads(pickle.dumps(retriever))) as again:
                assert again.retrieve("copper") == expected
                assert (again.similarity_top_k, again.rerank, again.filters) == (3, 2, options["filters"])

    def test_in_memory_says_what_to_do(self) -> None:
        with pytest.raises(InvalidTypeError, match=r"save\(path\)"):
            pickle.dumps(lexical(text_nodes("copper")))


class TestAsync:
    async def test_changes_have_async_twins(self) -> None:
        retriever = lexical()
        assert await retriever.ainsert_nodes(of_document("D1", "apple", "pear")) == ["D1-0", "D1-1"]
        assert await retriever.adelete_nodes(["D1-0"]) == 1
        assert await retriever.adelete_ref_doc("D1") == 1
        assert (await retriever.arefresh_nodes(of_document("D1", "apple"))).written == ["D1-0"]
        assert await retriever.arefresh_ref_docs([Document(id_="D1", text="plum")], []) == [True]
        assert await retriever.adelete_nodes(filters={"absent": {"exists": False}}) == 1
        assert len(retriever.engine) == 0
