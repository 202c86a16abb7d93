"""LlamaIndex's nodes to and from the engine's passages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    TextNode,
)

from sidr_rag import InvalidInputError, InvalidTypeError, Passage

NODE_KEY = "_sidr_node"
"""The metadata key of a passage that holds what a node has beside its id and its own metadata."""

_CLASSES: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
}
_KEPT_ELSEWHERE = {"id_", "metadata", "embedding"}


def to_passages(nodes: Iterable[BaseNode], objects: dict[str, Any]) -> Iterator[Passage]:
    """Nodes as passages whose text is `node.get_content(MetadataMode.EMBED)`.

    Args:
        nodes: consumed once.
        objects: gets the objects of `IndexNode`s, by index id; none is stored, because one may be a whole query engine.

    Raises:
        InvalidTypeError: if one is no node; names its position.
        InvalidInputError: if its metadata use the reserved key.
    """
    if isinstance(nodes, (str, bytes, BaseNode)) or not isinstance(nodes, Iterable):
        raise InvalidTypeError(f"nodes is a {type(nodes).__name__}; give a list of nodes")
    for i, node in enumerate(nodes):
        if not isinstance(node, BaseNode):
            raise InvalidTypeError(f"nodes[{i}] is a {type(node).__name__}; give nodes such as TextNode or Document")
        if NODE_KEY in node.metadata:
            raise InvalidInputError(
                f"nodes[{i}] ({node.node_id!r}) has the reserved metadata key {NODE_KEY!r}; rename it"
            )
        if isinstance(node, IndexNode) and node.obj is not None:
            objects[node.index_id] = node.obj
            node = node.model_copy(update={"obj": None})
        yield _to_passage(node)


def to_node(passage: Passage) -> BaseNode:
    """The node that a passage was made from; a passage of another origin as a `TextNode`."""
    metadata = dict(passage.metadata)
    kept = metadata.pop(NODE_KEY, None)
    if kept is None:
        # Nodes are valid Unicode, which a passage need not be.
        text = passage.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return TextNode(id_=passage.id, text=text, metadata=metadata)
    data: dict[str, Any] = json.loads(kept["json"])
    kind = _CLASSES.get(data["class_name"], TextNode)
    if issubclass(kind, TextNode):
        data.setdefault("text", passage.text)
    return kind.from_dict({**data, "id_": passage.id, "metadata": metadata})


def ref_doc_id(passage: Passage) -> str | None:
    """The source document's id of the node that a passage was made from."""
    kept = passage.metadata.get(NODE_KEY)
    return None if kept is None else kept["ref_doc_id"]


def _to_passage(node: BaseNode) -> Passage:
    content = node.get_content(MetadataMode.EMBED)
    data = node.model_dump(mode="json", exclude=_KEPT_ELSEWHERE)
    if isinstance(node, TextNode) and node.text == content:
        del data["text"]
    kept = {"ref_doc_id": node.ref_doc_id, "json": json.dumps(data, separators=(",", ":"))}
    return Passage(node.node_id, content, None, {**node.metadata, NODE_KEY: kept})
