from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llama_index
import llama_index.retrievers.sidr
import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.llms import MockLLM
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
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.retrievers.sidr import SiDRRetriever

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
    assert llama_index.retrievers.sidr.__all__ == ["SiDRRetriever", "__version__"]
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
            }
        ]

    def test_defaults_and_changes(self) -> None:
        retriever = lexical(text_nodes("copper a", "copper b", "copper c"))
        assert found_ids(retriever, "copper") == ["n0", "n1"]
        retriever.similarity_top_k = 20
        assert found_ids(retriever, "copper") == ["n0", "n1", "n2"]

    def test_k_edges(self) -> None:
        # R01
        engine = lexical(text_nodes("copper a", "copper b", "copper c")).engine
        for k in (20, 3, 1, 0):
            retriever = SiDRRetriever(engine, similarity_top_k=k, first_stage="lexical")
            assert len(retriever.retrieve("copper")) == min(k, 3)
            assert lexical(similarity_top_k=k).retrieve("copper") == []

    @pytest.mark.parametrize("k", [-1, "5", 2.5, True])
    def test_a_wrong_k_is_named(self, k: Any) -> None:
        # R01
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
        with pytest.raises(InvalidTypeError, match="filters is a dict"):
            SiDRRetriever.from_defaults(filters={"page": 3})  # type: ignore[arg-type]

    def test_filters_are_applied_before_the_cut(self) -> None:
        # R26
        nodes: list[BaseNode] = [
            TextNode(text="copper harbor", id_=f"n{i}", metadata={"page": i, "owner": "amber" if i >= 40 else "other"})
            for i in range(43)
        ]
        filters = MetadataFilters(filters=[MetadataFilter(key="owner", value="amber")])
        retriever = SiDRRetriever.from_defaults(nodes, similarity_top_k=5, filters=filters)
        assert sorted(found_ids(retriever, "copper harbor")) == ["n40", "n41", "n42"]


class TestEdges:
    @pytest.mark.filterwarnings("error::RuntimeWarning")
    def test_empty_texts_and_empty_stores(self) -> None:
        # R02
        blank = SiDRRetriever.from_defaults(text_nodes("", "   ", "\u200b"))
        assert blank.retrieve("invoice") == []
        assert len(blank.engine) == 3
        assert [node.get_content() for node in blank.get_nodes(["n0", "n1", "n2"])] == ["", "   ", "\u200b"]
        empty = SiDRRetriever.from_defaults(rerank=5)
        assert empty.retrieve("invoice") == []
        empty.insert_nodes([TextNode(text="an invoice of May", id_="new")])
        assert found_ids(empty, "invoice") == ["new"]

    def test_the_indexed_text_follows_the_embed_mode(self) -> None:
        # R55
        node = TextNode(
            text="pump manual",
            metadata={"title": "hydraulics", "secret": "falcon"},
            excluded_embed_metadata_keys=["secret"],
        )
        retriever = lexical([node])
        for query in ("hydraulics", "pump"):
            (found,) = retriever.retrieve(query)
            assert found.node == node
            assert found.node.get_content() == "pump manual"
        assert retriever.retrieve("falcon") == []

    def test_metadata_that_is_not_json_names_the_node(self) -> None:
        retriever = lexical(text_nodes("kept"))
        bad = TextNode(text="a", id_="x7", metadata={"when": datetime.date(2024, 1, 1)})
        with pytest.raises(InvalidTypeError, match="'x7' holds a date"):
            retriever.insert_nodes([TextNode(text="fine"), bad])
        assert retriever.engine.ids() == ["n0"]

    def test_results_and_inputs_are_not_live(self) -> None:
        # R29
        node = TextNode(text="copper", metadata={"tags": ["a"]})
        retriever = lexical([node])
        node.metadata["tags"].append("b")
        found = retriever.retrieve("copper")[0].node
        found.metadata["tags"].append("c")
        found.metadata["x"] = 1
        assert retriever.retrieve("copper")[0].node.metadata == {"tags": ["a"]}


class TestIdentity:
    def test_ids_are_those_given(self) -> None:
        # R28
        nodes = [*of_document("D1", "copper one"), TextNode(text="copper two", id_="x2", metadata={"id": "other"})]
        retriever = lexical(nodes)
        found = retriever.retrieve("copper")
        assert [(f.node.node_id, f.node.ref_doc_id) for f in found] == [("D1-0", "D1"), ("x2", None)]
        assert found[1].node.metadata == {"id": "other"}

    def test_equal_ids_replace(self) -> None:
        # R52
        retriever = lexical([TextNode(text=text, id_=i) for text, i in (("apple", "x"), ("pear", "y"), ("plum", "x"))])
        assert found_ids(retriever, "apple") == []
        assert found_ids(retriever, "plum") == ["x"]
        retriever.insert_nodes([TextNode(text="cherry", id_="x")])
        assert found_ids(retriever, "plum") == []
        assert len(retriever.engine) == 2

    def test_equal_texts_are_different_nodes(self) -> None:
        # R05
        text = "Refund window is 30 days."
        nodes: list[BaseNode] = [
            TextNode(text=text, id_="a", metadata={"source": "eu.md"}, excluded_embed_metadata_keys=["source"]),
            TextNode(text="Shipping takes 5 days.", id_="c"),
            TextNode(text=text, id_="b", metadata={"source": "us.md"}, excluded_embed_metadata_keys=["source"]),
        ]
        retriever = SiDRRetriever.from_defaults(nodes, similarity_top_k=2)
        assert [(f.node.node_id, f.node.metadata["source"]) for f in retriever.retrieve("refund window")] == [
            ("a", "eu.md"),
            ("b", "us.md"),
        ]
        assert retriever.delete_nodes(["a", "absent"]) == 1
        assert found_ids(retriever, "refund window")[0] == "b"


class TestDocuments:
    def test_delete_and_add_again(self, tmp_path: Path) -> None:
        # R56
        first = of_document("D1", "apple one", "apple two", "apple three")
        second = of_document("D2", "pear one", "pear two")
        retriever = lexical([*first, *second], similarity_top_k=10)
        assert retriever.delete_ref_doc("unknown") == 0
        assert len(retriever.engine) == 5
        assert retriever.delete_ref_doc("D1") == 3
        assert retriever.retrieve("apple") == []
        assert found_ids(retriever, "pear") == ["D2-0", "D2-1"]
        retriever.insert_nodes(of_document("D1", "plum one", "plum two"))

        def check(r: SiDRRetriever) -> None:
            assert r.retrieve("apple") == []
            assert found_ids(r, "plum") == ["D1-0", "D1-1"]
            assert found_ids(r, "pear") == ["D2-0", "D2-1"]

        check(retriever)
        retriever.persist(tmp_path / "store")
        reopened = SiDRRetriever.from_persist_dir(tmp_path / "store", first_stage="lexical", similarity_top_k=10)
        check(reopened)
        assert reopened.delete_ref_doc("D1") == 2
        reopened.close()

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
        assert [f.node for f in found] == [TextNode(text="copper wire", id_="p", metadata={"page": 1})]


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


class TestAsync:
    async def test_searches_never_block_the_loop(
        self, slow_encoder: Callable[..., None], latest_tick: Callable[..., Any]
    ) -> None:
        # R50
        retriever = SiDRRetriever.from_defaults(text_nodes("copper wire", "falcon nest", "river stone"))
        queries = ["copper", "falcon", "river", "wire"] * 5
        expected = [found_ids(retriever, query) for query in queries]
        slow_encoder(retriever.engine, queries, 0.3)
        delays = []
        # A loop that is blocked is late every time; one on a busy machine is not.
        while not delays or (delays[-1] >= 0.1 and len(delays) < 3):
            found, delay = await latest_tick(lambda: asyncio.gather(*(retriever.aretrieve(query) for query in queries)))
            delays.append(delay)
            assert [[f.node.node_id for f in each] for each in found] == expected
        assert min(delays) < 0.1

    async def test_changes_have_async_twins(self) -> None:
        retriever = lexical()
        assert await retriever.ainsert_nodes(of_document("D1", "apple", "pear")) == ["D1-0", "D1-1"]
        assert await retriever.adelete_nodes(["D1-0"]) == 1
        assert await retriever.adelete_ref_doc("D1") == 1
        assert len(retriever.engine) == 0
