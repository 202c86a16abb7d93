"""LlamaIndex's nodes to and from the engine's passages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from sidr_rag import InvalidInputError, InvalidTypeError, Passage

NODE_KEY = "_sidr_node"
"""The metadata key of a passage that holds what a node has beside its id and its own metadata, as JSON."""
ID_KEY = "_sidr_node_id"
"""The metadata key of the node's id, so that a filter can name it."""
DOCUMENT_KEY = "_sidr_ref_doc_id"
"""The metadata key of the source document's id."""
RESERVED = (NODE_KEY, ID_KEY, DOCUMENT_KEY)

_CLASSES: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
}
_KEPT_ELSEWHERE = {"id_", "metadata", "embedding"}
_FILE_KEYS = ("source", "kind", "start")  # what every passage of the engine's file reader has


def to_passages(nodes: Iterable[BaseNode], objects: dict[str, Any]) -> Iterator[Passage]:
    """Nodes as passages whose text is `node.get_content(MetadataMode.EMBED)`.

    Args:
        nodes: consumed once.
        objects: gets the objects of `IndexNode`s, by index id; none is stored, because one may be a whole query engine.

    Raises:
        InvalidTypeError: if one is no node; names its position.
        InvalidInputError: if its metadata use a reserved key.
    """
    if isinstance(nodes, (str, bytes, BaseNode)) or not isinstance(nodes, Iterable):
        raise InvalidTypeError(f"nodes is a {type(nodes).__name__}; give a list of nodes")
    for i, node in enumerate(nodes):
        if not isinstance(node, BaseNode):
            raise InvalidTypeError(f"nodes[{i}] is a {type(node).__name__}; give nodes such as TextNode or Document")
        for key in RESERVED:
            if key in node.metadata:
                raise InvalidInputError(
                    f"nodes[{i}] ({node.node_id!r}) has the reserved metadata key {key!r}; rename it"
                )
        if isinstance(node, IndexNode) and node.obj is not None:
            objects[node.index_id] = node.obj
            node = node.model_copy(update={"obj": None})
        yield _to_passage(node)


def to_node(passage: Passage) -> BaseNode:
    """The node that a passage was made from; a passage of another origin as a `TextNode`."""
    metadata = {key: value for key, value in passage.metadata.items() if key not in RESERVED}
    kept = passage.metadata.get(NODE_KEY)
    if kept is None:
        return _of_other_origin(passage, metadata)
    data: dict[str, Any] = json.loads(kept)
    kind = _CLASSES.get(data["class_name"], TextNode)
    if issubclass(kind, TextNode):
        data.setdefault("text", passage.text)
    return kind.from_dict({**data, "id_": passage.id, "metadata": metadata})


def document_of(node: BaseNode) -> tuple[str | None, str | None]:
    """The id and hash of the document that a node comes from: its own if it is one."""
    source = node.source_node
    if source is not None:
        return source.node_id, source.hash
    return (node.node_id, node.hash) if isinstance(node, Document) else (None, None)


def of_documents(document_ids: Sequence[str]) -> dict[str, Any]:
    """A filter of the engine for the nodes of some documents; for passages of files, the path is the document's id."""
    of_files = [{"path": [key], "exists": True} for key in _FILE_KEYS[1:]]
    not_a_node = {"path": [NODE_KEY], "exists": False}
    return {
        "or": [
            {"path": [DOCUMENT_KEY], "in": list(document_ids)},
            {"and": [{"path": [_FILE_KEYS[0]], "in": list(document_ids)}, *of_files, not_a_node]},
        ]
    }


def _to_passage(node: BaseNode) -> Passage:
    content = node.get_content(MetadataMode.EMBED)
    data = node.model_dump(mode="json", exclude=_KEPT_ELSEWHERE)
    if isinstance(node, TextNode) and node.text == content:
        del data["text"]
    metadata = {**node.metadata, NODE_KEY: json.dumps(data, separators=(",", ":")), ID_KEY: node.node_id}
    document_id, _ = document_of(node)
    if document_id is not None:
        metadata[DOCUMENT_KEY] = document_id
    return Passage(node.node_id, content, None, metadata)


def _of_other_origin(passage: Passage, metadata: dict[str, Any]) -> TextNode:
    if passage.title is not None:
        metadata.setdefault("title", passage.title)
    from_file = all(key in metadata for key in _FILE_KEYS)
    relationships: dict[NodeRelationship, RelatedNodeInfo] = {}
    if from_file and isinstance(metadata["source"], str):
        source = _valid(metadata["source"])
        relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source, node_type=ObjectType.DOCUMENT)
    return TextNode(
        id_=_valid(passage.id),
        text=_valid(passage.text),
        metadata=metadata,
        # Title and text are what was indexed.
        excluded_embed_metadata_keys=[_valid(key) for key in metadata if key != "title"],
        excluded_llm_metadata_keys=["kind", "start"] if from_file else [],
        relationships=relationships,
    )


def _valid(text: str) -> str:
    """Nodes are valid Unicode, which a passage need not be."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
