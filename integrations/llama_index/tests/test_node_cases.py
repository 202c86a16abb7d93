"""Situations from public reports through the retriever and an index over the vector store, named by their numbers."""
# ruff: noqa: N802

from __future__ import annotations

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.retrievers.sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import IndexFormatError, InvalidInputError, InvalidTypeError, SiDR

ROOT = Path(__file__).resolve().parents[3]
REPORT = ROOT.parent / "shared" / "cases" / "public-reports.md"
WORDS = ["anchor", "copper", "falcon", "alpha", "beta", "river", "stone", "winter", "bridge", "garden"]
LEXICAL: dict[str, Any] = {"weighting": "binary", "first_stage": "lexical"}


class Surface(ABC):
    """One way to the engine in LlamaIndex."""

    engine: SiDR

    @abstractmethod
    def insert(self, nodes: Sequence[BaseNode]) -> None: ...

    @abstractmethod
    def delete(self, node_ids: list[str]) -> None: ...

    @abstractmethod
    def delete_ref_doc(self, ref_doc_id: str) -> None: ...

    @abstractmethod
    def search(self, query: str, k: Any = 10, **options: Any) -> list[NodeWithScore]: ...

    @abstractmethod
    async def asearch(self, query: str, k: int = 10) -> list[NodeWithScore]: ...

    @abstractmethod
    def reopened(self, folder: Path) -> Surface: ...

    def ids(self, query: str, k: int = 10, **options: Any) -> list[str]:
        return [found.node.node_id for found in self.search(query, k, **options)]


class RetrieverSurface(Surface):
    def __init__(self, retriever: SiDRRetriever) -> None:
        self.retriever = retriever
        self.engine = retriever.engine

    @classmethod
    def of(cls, nodes: Sequence[BaseNode], **options: Any) -> RetrieverSurface:
        return cls(SiDRRetriever.from_defaults(nodes, **options))

    def insert(self, nodes: Sequence[BaseNode]) -> None:
        self.retriever.insert_nodes(nodes)

    def delete(self, node_ids: list[str]) -> None:
        self.retriever.delete_nodes(node_ids)

    def delete_ref_doc(self, ref_doc_id: str) -> None:
        self.retriever.delete_ref_doc(ref_doc_id)

    def search(self, query: str, k: Any = 10, **options: Any) -> list[NodeWithScore]:
        for name, value in {"similarity_top_k": k, **options}.items():
            setattr(self.retriever, name, value)
        return self.retriever.retrieve(query)

    async def asearch(self, query: str, k: int = 10) -> list[NodeWithScore]:
        self.retriever.similarity_top_k = k
        return await self.retriever.aretrieve(query)

    def reopened(self, folder: Path) -> RetrieverSurface:
        self.retriever.persist(folder)
        return RetrieverSurface(SiDRRetriever.from_persist_dir(folder))


class IndexSurface(Surface):
    def __init__(self, store: SiDRVectorStore) -> None:
        self.store = store
        self.engine = store.engine
        self.index = store.as_index()

    @classmethod
    def of(cls, nodes: Sequence[BaseNode], **options: Any) -> IndexSurface:
        made = cls(SiDRVectorStore(**options))
        made.index.insert_nodes(nodes)
        return made

    def insert(self, nodes: Sequence[BaseNode]) -> None:
        self.index.insert_nodes(nodes)

    def delete(self, node_ids: list[str]) -> None:
        self.index.delete_nodes(node_ids)

    def delete_ref_doc(self, ref_doc_id: str) -> None:
        self.index.delete_ref_doc(ref_doc_id)

    def search(self, query: str, k: Any = 10, **options: Any) -> list[NodeWithScore]:
        filters = options.pop("filters", None)
        return self.index.as_retriever(similarity_top_k=k, filters=filters, vector_store_kwargs=options).retrieve(query)

    async def asearch(self, query: str, k: int = 10) -> list[NodeWithScore]:
        return await self.index.as_retriever(similarity_top_k=k).aretrieve(query)

    def reopened(self, folder: Path) -> IndexSurface:
        self.index.storage_context.persist(folder)
        return IndexSurface(SiDRVectorStore.from_persist_dir(folder))


Make = Callable[..., Surface]


@pytest.fixture(params=[RetrieverSurface, IndexSurface], ids=["retriever", "index"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """A function (nodes, **options) -> surface; what it made is closed at the end."""
    with contextlib.ExitStack() as stack:

        def build(nodes: Sequence[BaseNode] = (), **options: Any) -> Surface:
            return stack.enter_context(closing_engine(request.param.of(nodes, **options)))

        yield build


@contextlib.contextmanager
def closing_engine(surface: Surface) -> Iterator[Surface]:
    try:
        yield surface
    finally:
        surface.engine.close()


def nodes_of(*texts: str) -> list[BaseNode]:
    return [TextNode(text=text, id_=f"n{i}") for i, text in enumerate(texts)]


def of_document(doc_id: str, *texts: str) -> list[BaseNode]:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc_id)}
    return [TextNode(text=text, id_=f"{doc_id}-{i}", relationships=source) for i, text in enumerate(texts)]


def test_every_case_that_names_llama_index_is_here() -> None:
    if not REPORT.is_file():
        pytest.skip("the cases are not on this machine")
    sections = re.findall(r"^### (R\d+) (.*?)(?=^### |\Z)", REPORT.read_text(encoding="utf-8"), re.M | re.S)
    named = {case for case, text in sections if re.search(r"\bLI\b", text)}
    assert {"R01", "R02", "R05", "R28", "R50", "R55", "R56"} <= named
    here = {name.split("_")[1] for name in globals() if re.match(r"test_R\d+_", name)}
    assert named - here == set()


# Empty, tiny and missing input


def test_R01_k_larger_than_the_index(make: Make) -> None:
    for surface, n in ((make(nodes_of("copper one", "copper two", "copper three")), 3), (make(), 0)):
        for options in ({}, {"rerank": 5}, {"rerank": 0, "first_stage": "lexical"}):
            assert [len(surface.search("copper", k, **options)) for k in (20, 3, 1, 0)] == [
                min(k, n) for k in (20, 3, 1, 0)
            ]
        for k in (-1, "5", 2.5, True):
            with pytest.raises((InvalidInputError, InvalidTypeError), match=f"similarity_top_k={k!r}"):
                surface.search("copper", k)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_R02_only_empty_texts_and_an_empty_index(make: Make) -> None:
    blank = make(nodes_of("", "   ", "\u200b"))
    assert blank.search("invoice") == []
    assert len(blank.engine) == 3
    blank.delete(["n0", "n1"])
    assert blank.engine.ids() == ["n2"]
    empty = make()
    assert empty.search("invoice", rerank=5) == []
    empty.insert([TextNode(text="an invoice of May", id_="new")])
    assert empty.ids("invoice") == ["new"]


def test_R04_an_empty_node_in_the_middle(make: Make, tmp_path: Path) -> None:
    surface = make(nodes_of("foo", "", "quick god", "quick fox", "   ", "dog"), **LEXICAL)

    def check(s: Surface) -> None:
        assert [(f.node.node_id, f.node.get_content(), f.score) for f in s.search("quick")] == [
            ("n2", "quick god", 1.0),
            ("n3", "quick fox", 1.0),
        ]
        assert s.ids("dog") == ["n5"]

    check(surface)
    with closing_engine(surface.reopened(tmp_path / "s")) as again:
        check(again)
        again.delete(["n1"])
        check(again)


def test_R61_an_empty_index_is_still_an_index() -> None:
    full = SiDRRetriever.from_defaults(nodes_of("copper"))
    empty = SiDR.from_texts([])
    assert SiDRRetriever(empty).retrieve("copper") == []
    assert SiDRVectorStore(empty).as_index().as_retriever().retrieve("copper") == []
    assert len(full.retrieve("copper")) == 1


# Identity, deletion, update


def test_R05_same_text_different_nodes(make: Make) -> None:
    text = "Refund window is 30 days."
    hidden = {"excluded_embed_metadata_keys": ["source"]}
    surface = make(
        [
            TextNode(text=text, id_="a", metadata={"source": "eu.md"}, **hidden),
            TextNode(text="Shipping takes 5 days.", id_="c"),
            TextNode(text=text, id_="b", metadata={"source": "us.md"}, **hidden),
        ]
    )
    found = surface.search("refund window", 2)
    assert [(f.node.node_id, f.node.metadata["source"]) for f in found] == [("a", "eu.md"), ("b", "us.md")]
    surface.delete(["a", "absent"])
    assert surface.ids("refund window")[0] == "b"
    assert len(surface.engine) == 2


def test_R07_after_a_delete_results_belong_to_the_right_texts(make: Make, tmp_path: Path) -> None:
    surface = make(nodes_of(*(f"item {word}" for word in WORDS)), **LEXICAL)
    surface.delete(["n0", "n4", "n9"])

    def check(s: Surface, n: int) -> None:
        for i, word in enumerate(WORDS):
            texts = [f.node.get_content() for f in s.search(word)]
            assert texts == ([] if i in (0, 4, 9) else [f"item {word}"])
        assert len(s.engine) == n

    check(surface, 7)
    surface.insert([TextNode(text="more one"), TextNode(text="more two")])
    check(surface, 9)
    with closing_engine(surface.reopened(tmp_path / "s")) as again:
        check(again, 9)


def test_R08_what_was_added_later_is_there_after_reload(make: Make, tmp_path: Path) -> None:
    surface = make(nodes_of(*(f"filler {i}" for i in range(50))), **LEXICAL)
    with closing_engine(surface.reopened(tmp_path / "s")) as saved:
        assert len(saved.engine) == 50
    surface.insert([TextNode(text="sfeqsbsr zebra", id_="late")])
    assert surface.ids("zebra") == ["late"]
    with closing_engine(surface.reopened(tmp_path / "s")) as again:
        assert again.ids("zebra") == ["late"]
        assert again.ids("filler 49", 1) == ["n49"]
        assert len(again.engine) == 51


def test_R28_ids_are_those_given(make: Make, tmp_path: Path) -> None:
    unnamed = TextNode(text="copper three")
    given = [*of_document("D1", "copper one"), TextNode(text="copper two", id_="x2", metadata={"id": "other"}), unnamed]
    surface = make(given, **LEXICAL)
    expected = [("D1-0", "D1", {}), ("x2", None, {"id": "other"}), (unnamed.node_id, None, {})]

    def told(found: list[NodeWithScore]) -> list[Any]:
        return sorted((f.node.node_id, f.node.ref_doc_id, f.node.metadata) for f in found)

    # "x2" shares one piece more with the question: its metadata are indexed.
    assert told(surface.search("copper")) == sorted(expected, key=lambda item: item[0])
    assert told(asyncio.run(surface.asearch("copper"))) == told(surface.search("copper"))
    with closing_engine(surface.reopened(tmp_path / "s")) as again:
        assert told(again.search("copper")) == told(surface.search("copper"))


def test_R29_results_and_inputs_are_not_live(make: Make) -> None:
    node = TextNode(text="copper", metadata={"tags": ["a"]})
    surface = make([node])
    node.metadata["tags"].append("b")
    found = surface.search("copper")[0]
    found.node.metadata["tags"].append("c")
    found.node.metadata["x"] = 1
    found.score = 99.0
    again = surface.search("copper")[0]
    assert again.node.metadata == {"tags": ["a"]}
    assert again.score != 99.0


def test_R52_duplicate_ids(make: Make) -> None:
    surface = make(
        [TextNode(text=text, id_=i) for text, i in (("apple", "x"), ("pear", "y"), ("plum", "x"))], **LEXICAL
    )
    assert surface.ids("apple") == []
    assert surface.ids("plum") == ["x"]
    surface.insert([TextNode(text="cherry", id_="x")])
    assert surface.ids("plum") == []
    assert len(surface.engine) == 2
    odd = ["a\\b", "a/b", "", "é", "i" * 300]
    surface.insert([TextNode(text=f"walnut {i}", id_=own) for i, own in enumerate(odd)])
    assert sorted(surface.ids("walnut")) == sorted(odd)


def test_R55_the_indexed_text_follows_the_metadata_mode(make: Make) -> None:
    node = TextNode(
        text="pump manual",
        metadata={"title": "hydraulics", "secret": "falcon"},
        excluded_embed_metadata_keys=["secret"],
    )
    surface = make([node], **LEXICAL)
    for query in ("hydraulics", "pump"):
        (found,) = surface.search(query)
        assert found.node == node
        assert found.node.get_content() == "pump manual"
    assert surface.search("falcon") == []


def test_R56_delete_a_source_document_and_add_it_again(make: Make, tmp_path: Path) -> None:
    surface = make(
        [*of_document("D1", "apple one", "apple two", "apple three"), *of_document("D2", "pear one", "pear two")],
        **LEXICAL,
    )
    surface.delete_ref_doc("unknown")
    assert len(surface.engine) == 5
    surface.delete_ref_doc("D1")
    assert surface.search("apple") == []
    assert surface.ids("pear") == ["D2-0", "D2-1"]
    surface.insert(of_document("D1", "plum one", "plum two"))

    def check(s: Surface) -> None:
        assert s.search("apple") == []
        assert s.ids("plum") == ["D1-0", "D1-1"]
        assert s.ids("pear") == ["D2-0", "D2-1"]

    check(surface)
    with closing_engine(surface.reopened(tmp_path / "s")) as again:
        check(again)
        again.delete_ref_doc("D1")
        assert again.search("plum") == []
        assert len(again.engine) == 2


# Filters


def test_R26_a_filter_is_applied_before_the_cut(make: Make) -> None:
    # Told apart by a number, because older versions of the framework merge nodes of equal content.
    def of(owner: str, text: str, n: int) -> list[BaseNode]:
        metadata = [{"owner": owner, "n": i} for i in range(n)]
        hidden = ["owner", "n"]
        return [
            TextNode(text=text, id_=f"{owner}{m['n']}", metadata=m, excluded_embed_metadata_keys=hidden)
            for m in metadata
        ]

    surface = make([*of("other", "copper harbor ledger", 60), *of("amber", "copper", 7)], **LEXICAL)

    def of_owner(name: str) -> MetadataFilters:
        return MetadataFilters(filters=[MetadataFilter(key="owner", value=name)])

    query = "copper harbor ledger"
    assert surface.ids(query, 5, filters=of_owner("amber")) == [f"amber{i}" for i in range(5)]
    assert surface.ids(query, 10, filters=of_owner("amber")) == [f"amber{i}" for i in range(7)]
    assert surface.ids(query, 10, filters=of_owner("nobody")) == []
    assert len(surface.ids(query, 5, filters=of_owner("amber"), rerank=20)) == 5


# Saving and loading


def test_R37_settings_are_saved_too(make: Make, tmp_path: Path) -> None:
    nodes = nodes_of(*(f"copper {i} river {i % 3} stone" for i in range(20)))
    mine = {"rerank": 3, "reranker": "theta", "query_repr": "lex", "max_active_dims": 30, "min_score": 0.01}
    surface = make(nodes, **mine)
    questions = [f"copper {i} stone" for i in range(5)]
    expected = [surface.search(question, 4) for question in questions]
    with closing_engine(surface.reopened(tmp_path / "s")) as again:
        assert [again.search(question, 4) for question in questions] == expected
    (file,) = tmp_path.rglob("retriever.json")
    kept = file.read_text(encoding="utf-8")
    assert '"rerank": 3' in kept
    file.write_text(kept.replace('"rerank": 3', '"colour": "red"'), encoding="utf-8")
    reopen = SiDRRetriever.from_persist_dir(file.parent)
    assert reopen.rerank == 0
    reopen.close()
    file.write_text(kept.replace('"rerank": 3', '"rerank": "3"'), encoding="utf-8")
    for open_again in (SiDRRetriever.from_persist_dir, SiDRVectorStore.from_persist_path):
        with pytest.raises(IndexFormatError, match=r"retriever\.json: rerank='3'"):
            open_again(file.parent)


def test_R53_nested_metadata(make: Make, tmp_path: Path) -> None:
    metadata = {
        "links": [{"text": "Git", "url": "#git"}],
        "langs": ["eng"],
        "page": 3,
        "score": 0.1,
        "ok": True,
        "none": None,
        "big": 2**70,
        "key with space": "",
    }
    surface = make([TextNode(text="copper", id_="n", metadata=metadata)])

    def check(s: Surface) -> None:
        found = s.search("copper")[0].node.metadata
        assert found == metadata
        assert {name: type(value) for name, value in found.items()} == {k: type(v) for k, v in metadata.items()}

    check(surface)
    with closing_engine(surface.reopened(tmp_path / "s")) as again:
        check(again)


# Several threads, processes and event loops


def test_R49_reranking_nothing(make: Make) -> None:
    class Failing:
        def rerank(self, query: str, passages: Any, beta_scores: Any) -> Any:
            raise RuntimeError("no second stage today")

    assert make().search("copper", rerank=50) == []
    surface = make(nodes_of("copper wire", "", "falcon", "copper", "   "))
    assert surface.search("zebra", rerank=50) == []
    assert sorted(surface.ids("copper", rerank=50)) == ["n0", "n3"]
    with pytest.raises(RuntimeError, match="no second stage"):
        surface.search("copper", rerank=2, reranker=Failing())


async def test_R50_async_retrieval_inside_a_running_loop(
    make: Make, slow_encoder: Callable[..., None], never_blocked: Callable[..., Any]
) -> None:
    surface = make(nodes_of("copper wire", "falcon nest", "river stone"))
    queries = ["copper", "falcon", "river", "wire"] * 5
    expected = [surface.ids(query) for query in queries[:4]] * 5
    slow_encoder(surface.engine, queries, 0.3)
    for found in await never_blocked(lambda: asyncio.gather(*(surface.asearch(query) for query in queries))):
        assert [[f.node.node_id for f in each] for each in found] == expected
