"""Found nodes as one text within a budget."""

from __future__ import annotations

import pytest
from llama_index.core.schema import Document, ImageNode, TextNode
from llama_index.retrievers.sidr import SiDRRetriever, pack_nodes

from sidr_rag import InvalidTypeError

NODES = [
    TextNode(text="Copper conducts electricity.", id_="a", metadata={"title": "Metals", "source": "a.md"}),
    TextNode(text="A wire of copper carries the current.", id_="b", metadata={"title": 3}),
    TextNode(text="Falcons hunt by day.", id_="c"),
]


def test_found_nodes_are_numbered_and_metadata_are_left_out_of_the_text() -> None:
    found = SiDRRetriever.from_defaults(NODES, similarity_top_k=2).retrieve("copper")
    packed = pack_nodes(found, max_tokens=200, counter=len)
    assert packed.text in (
        f"[1] Metals (a.md)\n{NODES[0].text}\n\n[2]\n{NODES[1].text}",
        f"[1]\n{NODES[1].text}\n\n[2] Metals (a.md)\n{NODES[0].text}",
    )
    assert [passage.id for passage in packed.passages] == [f.node.node_id for f in found]


def test_the_budget_holds_and_plain_nodes_are_taken() -> None:
    packed = pack_nodes([*NODES, Document(text="River.", id_="d")], max_tokens=40, counter=len)
    assert len(packed.text) <= 40
    assert [passage.id for passage in packed.passages] == ["c", "d"]
    assert packed.left_out == ("a", "b")
    cut = pack_nodes(NODES, max_tokens=60, counter=len, cut=True, heading=lambda number, passage: f"<{number}>")
    assert cut.text == "<1>\nCopper conducts electricity.\n\n<2>\nA wire of copper …"
    assert (cut.cut, cut.left_out) == ("b", ("c",))
    assert pack_nodes([ImageNode(text="caption", id_="i")], max_tokens=9).passages[0].text == "caption"


def test_what_is_no_node_is_named() -> None:
    with pytest.raises(InvalidTypeError, match=r"nodes\[1\] is a str; give nodes"):
        pack_nodes([NODES[0], "text"], max_tokens=9)  # type: ignore[list-item]
