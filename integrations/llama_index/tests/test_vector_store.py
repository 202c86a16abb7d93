"""The vector store by itself: queries, modes, filters, changes, keeping."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import pytest
from llama_index.core.schema import BaseNode, Document, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.retrievers.sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import IndexFormatError, InvalidInputError, InvalidTypeError, SiDR
from sidr_rag.rerank.fusion import Fusion
from sidr_rag.similarity import search_diverse

TEXTS = [
    "Copper conducts electricity.",
    "A wire of copper carries the current.",
    "Falcons hunt by day.",
    "The heart pumps blood through the body.",
    "Rivers carry stones to the sea.",
]
LEXICAL: dict[str, Any] = {"weighting": "binary", "first_stage": "lexical"}


def nodes_of(*texts: str) -> list[BaseNode]:
    return [TextNode(text=text, id_=f"n{i}") for i, text in enumerate(texts)]


def store_of(nodes: Sequence[BaseNode] | None = None, **options: Any) -> SiDRVectorStore:
    store = SiDRVectorStore(**options)
    store.add(nodes_of(*TEXTS) if nodes is None else nodes)
    return store


def asked(text: str | None, k: int = 10, mode: str = "default", **fields: Any) -> VectorStoreQuery:
    return VectorStoreQuery(query_str=text, similarity_top_k=k, mode=VectorStoreQueryMode(mode), **fields)


def ids(store: SiDRVectorStore, text: str, k: int = 10, mode: str = "default", **fields: Any) -> list[str]:
    return list(store.query(asked(text, k, mode, **fields)).ids or ())


class TestQueries:
    def test_results_are_the_engines(self) -> None:
        store = store_of(rerank=3)
        assert isinstance(store, BasePydanticVectorStore)
        assert (store.stores_text, store.is_embedding_query, store.client) == (True, False, store.engine)
        found = store.query(asked("Which metal conducts?", 3))
        expected = store.engine.search("Which metal conducts?", k=3, rerank=3)
        assert found.ids == [result.passage.id for result in expected]
        assert found.similarities == [result.score for result in expected]
        assert found.nodes == [nodes_of(*TEXTS)[int(own[1:])] for own in found.ids]
        # The same nodes as through a retriever over the same engine.
        retriever = SiDRRetriever(store.engine, similarity_top_k=3, rerank=3)
        assert [f.node.node_id for f in retriever.retrieve("Which metal conducts?")] == found.ids

    def test_only_what_matches(self) -> None:
        found = store_of(**LEXICAL).query(asked("zebra"))
        assert (found.nodes, found.ids, found.similarities) == ([], [], [])

    def test_an_embedding_alone_is_refused(self) -> None:
        with pytest.raises(InvalidTypeError, match="query_str is a NoneType; this store searches for texts"):
            store_of().query(VectorStoreQuery(query_embedding=[0.1, 0.2]))

    def test_options_of_the_store_and_of_one_query(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = store_of(rerank=9, query_repr="lex")
        seen: list[dict[str, Any]] = []
        monkeypatch.setattr(SiDR, "search", lambda self, query, **arguments: seen.append(arguments) or [])
        store.query(asked("a"))
        store.query(asked("a", mode="sparse"), rerank=0, search="full")
        assert [(s["rerank"], s["query_repr"], s["search"], s["k"]) for s in seen] == [
            (9, "lex", "beta", 10),
            (0, "lex", "full", 10),
        ]
        with pytest.raises(InvalidTypeError, match="unknown options 'topk'"):
            store.query(asked("a"), topk=3)
        with pytest.raises(InvalidInputError, match="search='gamma'"):
            store.query(asked("a"), search="gamma")


class TestModes:
    def test_text_search_is_by_the_own_words(self) -> None:
        store = store_of()
        assert ids(store, "copper wire", mode="text_search") == [
            r.passage.id for r in store.engine.search("copper wire", first_stage="lexical")
        ]

    @pytest.mark.parametrize(
        ("alpha", "stage"),
        [
            (None, Fusion(("sidr", "bm25"))),
            (0.3, Fusion(("sidr", "bm25"), weights=(0.3, 0.7))),
            (0, "bm25"),
            (1.0, "sidr"),
        ],
    )
    def test_hybrid(self, alpha: float | None, stage: Any) -> None:
        store = store_of()
        found = store.query(asked("copper current", mode="hybrid", alpha=alpha))
        expected = store.engine.search("copper current", first_stage=stage)
        assert found.ids == [r.passage.id for r in expected]
        assert found.similarities == [r.score for r in expected]
        assert found.ids

    @pytest.mark.parametrize("alpha", [-0.1, 1.5, "0.5", True])
    def test_a_wrong_alpha_is_named(self, alpha: Any) -> None:
        with pytest.raises(InvalidInputError, match=f"alpha={alpha!r} must be a number from 0"):
            store_of([]).query(asked("copper", mode="hybrid", alpha=alpha))

    def test_mmr_takes_nodes_that_differ(self) -> None:
        texts = ["copper wire copper", "copper wire", "copper wire", "copper nest of a falcon far away", "river"]
        store = store_of(nodes_of(*texts), **LEXICAL)
        assert ids(store, "copper wire", 2, "default") == ["n0", "n1"]
        first, second = ids(store, "copper wire", 2, "mmr", mmr_threshold=0.1)
        assert (first, second) == ("n0", "n3")
        # Only what matches, although the candidates could be filled up.
        assert sorted(ids(store, "copper wire", 5, "mmr")) == ["n0", "n1", "n2", "n3"]
        expected = search_diverse(
            store.engine, "copper wire", k=3, fetch_k=6, relevance_weight=0.2, first_stage="lexical", min_score=1e-9
        )
        given = store.query(asked("copper wire", 3, "mmr"), mmr_threshold=0.2, mmr_prefetch_factor=2)
        assert given.ids == [r.passage.id for r in expected]
        with pytest.raises(InvalidInputError, match=r"mmr_prefetch_factor=0\.5"):
            store.query(asked("copper", mode="mmr"), mmr_prefetch_factor=0.5)

    @pytest.mark.parametrize("mode", ["svm", "semantic_hybrid"])
    def test_other_modes_are_refused(self, mode: str) -> None:
        with pytest.raises(InvalidInputError, match=f"mode='{mode}' is not offered; choose default"):
            store_of([]).query(asked("copper", mode=mode))


METADATA: list[dict[str, Any]] = [
    {"page": 1, "owner": "amber", "tags": ["a", "b"], "note": "Copper wire"},
    {"page": 5, "owner": "Amber", "tags": ["b"], "note": "copper pipe"},
    {"page": 9, "owner": "ruby", "tags": [], "note": ""},
    {},
]
FILTERS = [
    (FilterOperator.EQ, "page", 5, [1]),
    (FilterOperator.NE, "page", 5, [0, 2, 3]),
    (FilterOperator.GT, "page", 5, [2]),
    (FilterOperator.GTE, "page", 5, [1, 2]),
    (FilterOperator.LT, "page", 5, [0]),
    (FilterOperator.LTE, "page", 5, [0, 1]),
    (FilterOperator.IN, "owner", ["amber", "ruby"], [0, 2]),
    (FilterOperator.NIN, "owner", ["amber", "ruby"], [1, 3]),
    (FilterOperator.ANY, "tags", ["a", "z"], [0]),
    (FilterOperator.ALL, "tags", ["a", "b"], [0]),
    (FilterOperator.CONTAINS, "tags", "b", [0, 1]),
    (FilterOperator.TEXT_MATCH, "note", "copper", [1]),
    (FilterOperator.TEXT_MATCH_INSENSITIVE, "note", "copper", [0, 1]),
    (FilterOperator.IS_EMPTY, "tags", None, [2, 3]),
]


@pytest.fixture(scope="module")
def filtered() -> SiDRVectorStore:
    nodes: list[BaseNode] = [
        TextNode(text="copper", id_=f"n{i}", metadata=m, excluded_embed_metadata_keys=list(m))
        for i, m in enumerate(METADATA)
    ]
    return store_of(nodes)


class TestFilters:
    def test_every_operator_has_a_case(self) -> None:
        assert {case[0] for case in FILTERS} == set(FilterOperator)

    @pytest.mark.parametrize(("operator", "key", "value", "expected"), FILTERS)
    def test_operators(
        self, filtered: SiDRVectorStore, operator: FilterOperator, key: str, value: Any, expected: list[int]
    ) -> None:
        filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])
        assert ids(filtered, "copper", filters=filters) == [f"n{i}" for i in expected]
        assert [node.node_id for node in filtered.get_nodes(filters=filters)] == [f"n{i}" for i in expected]

    def test_nested(self, filtered: SiDRVectorStore) -> None:
        either = MetadataFilters(
            filters=[MetadataFilter(key="owner", value="amber"), MetadataFilter(key="owner", value="ruby")],
            condition=FilterCondition.OR,
        )
        both = MetadataFilters(
            filters=[either, MetadataFilter(key="page", value=3, operator=FilterOperator.GT)],
            condition=FilterCondition.AND,
        )
        neither = MetadataFilters(filters=[both, MetadataFilter(key="page", value=1)], condition=FilterCondition.NOT)
        assert ids(filtered, "copper", filters=both) == ["n2"]
        assert ids(filtered, "copper", filters=neither) == ["n1", "n3"]
        assert ids(filtered, "copper", filters={"owner": {"exists": False}}) == ["n3"]

    def test_nodes_and_documents_by_id(self) -> None:
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="D1")}
        nodes: list[BaseNode] = [
            TextNode(text="copper one", id_="a", relationships=source, metadata={"page": 1}),
            TextNode(text="copper two", id_="b", relationships=source, metadata={"page": 2}),
            TextNode(text="copper three", id_="c"),
            Document(text="copper four", id_="D2"),
        ]
        store = store_of(nodes, **LEXICAL)
        assert ids(store, "copper", node_ids=[]) == ["a", "b", "c", "D2"]
        assert ids(store, "copper", node_ids=["c", "a", "absent"]) == ["a", "c"]
        assert ids(store, "copper", node_ids=["c"], k=1) == ["c"]
        assert ids(store, "copper", doc_ids=["D1"]) == ["a", "b"]
        assert ids(store, "copper", doc_ids=["D2", "D3"]) == ["D2"]
        page = MetadataFilters(filters=[MetadataFilter(key="page", value=2)])
        assert ids(store, "copper", doc_ids=["D1"], filters=page) == ["b"]
        assert ids(store, "copper", doc_ids=["D1"], node_ids=["c"]) == []
        store.engine.add(["copper five"], ids=["text"])
        with pytest.raises(InvalidInputError, match="node_ids: 'text' was not added as a node"):
            store.query(asked("copper", node_ids=["text"]))


class TestChanges:
    def test_delete(self) -> None:
        store = store_of()
        late = MetadataFilters(filters=[MetadataFilter(key="page", value=1)])
        store.add([TextNode(text="copper", id_="p1", metadata={"page": 1}), Document(text="copper", id_="D")])
        store.delete_nodes(["n0", "absent"])
        store.delete_nodes(["n1", "p1"], late)
        assert store.engine.ids() == ["n1", "n2", "n3", "n4", "D"]
        store.delete("D")
        store.delete("unknown")
        store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="page", value=7)]))
        assert store.engine.ids() == ["n1", "n2", "n3", "n4"]
        with pytest.raises(InvalidInputError, match="give ids, filters or both"):
            store.delete_nodes()
        store.clear()
        assert len(store.engine) == 0

    def test_get(self) -> None:
        store = store_of()
        assert store.get_nodes(["n3", "absent", "n0"]) == [nodes_of(*TEXTS)[3], nodes_of(*TEXTS)[0]]
        assert store.get_nodes() == nodes_of(*TEXTS)

    def test_embeddings_are_not_kept(self) -> None:
        store = store_of([TextNode(text="copper", id_="n", embedding=[0.5] * 4)])
        assert store.get_nodes(["n"])[0].embedding is None

    def test_a_call_is_all_or_nothing(self) -> None:
        store = store_of([])
        with pytest.raises(InvalidTypeError, match=r"nodes\[1\] is a str"):
            store.add([TextNode(text="copper"), "text"])  # type: ignore[list-item]
        assert len(store.engine) == 0


class TestMaking:
    def test_a_folder_is_made_and_opened_again(self, tmp_path: Path) -> None:
        with contextlib.closing(store_of(path=tmp_path / "s", weighting="binary")) as store:
            assert store.engine.path == tmp_path / "s"
        with contextlib.closing(SiDRVectorStore(path=tmp_path / "s")) as again:
            assert len(again.engine) == 5
            assert again.engine.info()["weighting"] == store_of([], weighting="binary").engine.info()["weighting"]

    def test_wrong_arguments_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="search='gamma'"):
            SiDRVectorStore(path=tmp_path / "s", search="gamma")
        assert not (tmp_path / "s").exists()
        engine = SiDR.from_texts(["copper"])
        with pytest.raises(InvalidTypeError, match="engine is a str; give a SiDR, or path="):
            SiDRVectorStore("folder")  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="path cannot be given with an engine"):
            SiDRVectorStore(engine, path=tmp_path)
        with pytest.raises(InvalidInputError, match="num_threads cannot be given with an engine"):
            SiDRVectorStore(engine, num_threads=1)
        with pytest.raises(InvalidTypeError, match="unknown options 'topk'"):
            SiDRVectorStore(topk=3)

    def test_persist(self, tmp_path: Path) -> None:
        store = store_of(rerank=4)
        store.persist(str(tmp_path / "deep" / "s"), fs=fsspec.filesystem("file"))
        again = SiDRVectorStore.from_persist_path(tmp_path / "deep" / "s", read_only=True)
        assert ids(again, "copper") == ids(store, "copper")
        assert json.loads((tmp_path / "deep" / "s" / "retriever.json").read_text("utf-8"))["rerank"] == 4
        again.close()
        with pytest.raises(InvalidInputError, match="rerank=-4"):
            SiDRVectorStore.from_persist_path(tmp_path / "deep" / "s", rerank=-4)
        with pytest.raises(InvalidInputError, match="fs is a MemoryFileSystem; a store is kept in a local folder"):
            store.persist("s", fs=fsspec.filesystem("memory"))
        with pytest.raises(IndexFormatError):
            SiDRVectorStore.from_persist_dir(tmp_path)

    def test_pickling(self, tmp_path: Path) -> None:
        with contextlib.closing(store_of(path=tmp_path / "s", rerank=2)) as store:
            expected = store.query(asked("copper"))
            with contextlib.closing(pickle.loads(pickle.dumps(store))) as again:
                assert again.query(asked("copper")) == expected
        with pytest.raises(InvalidTypeError, match=r"save\(path\)"):
            pickle.dumps(store_of())

    def test_serialized_it_names_its_class_and_holds_no_data(self) -> None:
        assert store_of().to_dict() == {
            "stores_text": True,
            "is_embedding_query": False,
            "flat_metadata": False,
            "class_name": "SiDRVectorStore",
        }


class TestAsync:
    async def test_everything_has_an_async_twin(self) -> None:
        store = store_of([])
        assert await store.async_add(nodes_of(*TEXTS)) == ["n0", "n1", "n2", "n3", "n4"]
        assert await store.aquery(asked("copper")) == store.query(asked("copper"))
        assert await store.aget_nodes(["n0"]) == store.get_nodes(["n0"])
        await store.adelete_nodes(["n0"])
        await store.adelete("unknown")
        assert store.engine.ids() == ["n1", "n2", "n3", "n4"]
        await store.aclear()
        assert store.engine.ids() == []

    async def test_changes_never_block_the_loop(
        self, monkeypatch: pytest.MonkeyPatch, never_blocked: Callable[..., Any]
    ) -> None:
        store = store_of([])
        add = SiDR.add_passages

        def slow(self: SiDR, passages: Any, **options: Any) -> list[str]:
            time.sleep(0.3)
            return add(self, passages, **options)

        monkeypatch.setattr(SiDR, "add_passages", slow)
        await never_blocked(
            lambda: asyncio.gather(store.async_add(nodes_of("copper")), store.async_add(nodes_of("falcon")))
        )
