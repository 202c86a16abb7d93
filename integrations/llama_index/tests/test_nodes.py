from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.retrievers.sidr.nodes import (
    DOCUMENT_KEY,
    ID_KEY,
    RESERVED,
    document_of,
    of_documents,
    to_node,
    to_passages,
)

from sidr_rag import InvalidInputError, InvalidTypeError, Passage
from sidr_rag.search.filters import filter_mask, parse_filter

RELATIONSHIPS: dict[NodeRelationship, Any] = {
    NodeRelationship.SOURCE: RelatedNodeInfo(node_id="D1", node_type=ObjectType.DOCUMENT, metadata={"z": 1}, hash="h"),
    NodeRelationship.NEXT: RelatedNodeInfo(node_id="n2"),
    NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c1"), RelatedNodeInfo(node_id="c2")],
}
NODES: list[BaseNode] = [
    TextNode(text="pump manual", id_="plain"),
    TextNode(
        text="  pump manual\n",
        id_="full",
        metadata={"title": "hydraulics", "secret": "falcon", "tags": ["a"], "page": 3},
        excluded_embed_metadata_keys=["secret"],
        excluded_llm_metadata_keys=["page"],
        relationships=RELATIONSHIPS,
        metadata_template="{key} = {value}",
        text_template="{content} [{metadata_str}]",
        mimetype="text/markdown",
        start_char_idx=3,
        end_char_idx=17,
    ),
    Document(text="a document", id_="document", metadata={"page": 1}),
    Document(id_="without text"),
    Node(id_="node", text_resource=MediaResource(text="text of a node", mimetype="text/plain")),
    ImageNode(text="caption", image_url="http://localhost/a.png", id_="image"),
    IndexNode(text="leads on", index_id="elsewhere", id_="index"),
    TextNode(text="", id_="empty", metadata={"kind": "note"}),
]


def stored(node: BaseNode) -> Passage:
    """A node's passage after the JSON of a store."""
    (passage,) = to_passages([node], {})
    return Passage(passage.id, passage.text, passage.title, json.loads(json.dumps(passage.metadata)))


@pytest.mark.parametrize("node", NODES, ids=lambda node: str(node.node_id))
def test_a_node_comes_back_as_it_was(node: BaseNode) -> None:
    before = node.model_dump()
    back = to_node(stored(node))
    assert type(back) is type(node)
    assert back == node
    assert back.hash == node.hash
    assert back.ref_doc_id == node.ref_doc_id
    assert document_of(back) == document_of(node)
    assert node.model_dump() == before


def test_the_indexed_text_is_that_of_the_embed_mode() -> None:
    assert stored(NODES[1]).text == "pump manual\n [title = hydraulics\ntags = ['a']\npage = 3]"
    assert stored(NODES[0]).text == "pump manual"


def test_metadata_stay_filterable_and_the_text_is_not_stored_twice() -> None:
    passage = stored(NODES[1])
    assert {key: value for key, value in passage.metadata.items() if key not in RESERVED} == NODES[1].metadata
    assert (passage.metadata[ID_KEY], passage.metadata[DOCUMENT_KEY]) == ("full", "D1")
    assert "pump" not in json.dumps(stored(NODES[0]).metadata)


def test_an_embedding_is_not_kept() -> None:
    node = TextNode(text="a", embedding=[0.5] * 8)
    assert to_node(stored(node)).embedding is None
    assert node.embedding == [0.5] * 8


def test_objects_are_handed_over_and_not_stored() -> None:
    target = object()
    node = IndexNode(text="leads on", index_id="elsewhere", obj=target)
    objects: dict[str, Any] = {}
    (passage,) = to_passages([node], objects)
    assert objects == {"elsewhere": target}
    assert node.obj is target
    back = to_node(passage)
    assert isinstance(back, IndexNode)
    assert (back.index_id, back.obj) == ("elsewhere", None)


def test_a_subclass_comes_back_as_text_node() -> None:
    class Special(TextNode):
        extra: int = 3

        @classmethod
        def class_name(cls) -> str:
            return "Special"

    back = to_node(stored(Special(text="special", id_="s")))
    assert type(back) is TextNode
    assert (back.text, back.node_id) == ("special", "s")


def test_a_passage_of_another_origin_becomes_a_text_node() -> None:
    back = to_node(Passage("p \udfff", "text \ud800", "title", {"page": 1}))
    assert isinstance(back, TextNode)
    assert (back.node_id, back.text, back.ref_doc_id) == ("p \ufffd", "text \ufffd", None)
    assert back.metadata == {"page": 1, "title": "title"}
    # What was indexed is title and text; a language model may see the page.
    assert back.get_content(MetadataMode.EMBED) == "title: title\n\ntext \ufffd"
    assert back.get_content(MetadataMode.LLM) == "page: 1\ntitle: title\n\ntext \ufffd"
    assert to_node(Passage("p", "text", "t", {"title": "own"})).metadata == {"title": "own"}


def test_a_passage_of_a_file_has_the_file_as_source_document() -> None:
    back = to_node(Passage("/a/b.md#0", "text", None, {"source": "/a/b.md", "kind": "md", "start": 0}))
    assert back.ref_doc_id == "/a/b.md"
    assert back.get_content(MetadataMode.LLM) == "source: /a/b.md\n\ntext"
    assert back.get_content(MetadataMode.EMBED) == "text"
    assert document_of(back) == ("/a/b.md", None)


def test_documents_are_found_by_a_filter() -> None:
    whole = Document(text="whole", id_="D2")
    of_file = Passage("/a#0", "text", None, {"source": "/a", "kind": "txt", "start": 0})
    named_alike = TextNode(text="x", id_="x", metadata={"source": "/a", "kind": "txt", "start": 0})
    passages = [
        stored(NODES[1]),
        stored(whole),
        of_file,
        stored(named_alike),
        Passage("p", "x", None, {"source": "/a"}),
    ]

    def matching(*documents: str) -> list[bool]:
        return filter_mask(parse_filter(of_documents(documents)), [p.metadata for p in passages]).tolist()

    assert matching("D1") == [True, False, False, False, False]
    assert matching("D2", "/a") == [False, True, True, False, False]
    assert matching() == [False] * 5


def test_what_is_no_node_is_named() -> None:
    with pytest.raises(InvalidTypeError, match=r"nodes\[1\] is a str"):
        list(to_passages([NODES[0], "secret"], {}))  # type: ignore[list-item]
    for given in ("text", NODES[0], 3):
        with pytest.raises(InvalidTypeError, match=f"nodes is a {type(given).__name__}; give a list"):
            list(to_passages(given, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize("key", RESERVED)
def test_the_reserved_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidInputError, match=f"\\('x'\\) has the reserved metadata key '{key}'"):
        list(to_passages([TextNode(text="a", id_="x", metadata={key: 1})], {}))
