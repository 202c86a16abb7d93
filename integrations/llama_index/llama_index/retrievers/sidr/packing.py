"""Found nodes as one numbered text within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from sidr_rag import InvalidTypeError, Passage
from sidr_rag.packing import Packed, pack
from sidr_rag.token_counting import Counter


def pack_nodes(
    nodes: Iterable[NodeWithScore | BaseNode],
    *,
    max_tokens: int,
    counter: Counter = "auto",
    heading: Callable[[int, Passage], str] | None = None,
    cut: bool = False,
) -> Packed:
    """`sidr_rag.packing.pack` for nodes, best first: `pack_nodes(retriever.retrieve(q), max_tokens=2000).text`.

    Args:
        nodes: of any retriever.
        max_tokens: the budget for the whole text, headings included.
        counter: what counts tokens; see `sidr_rag.token_counting.token_counter`. Nothing is ever downloaded.
        heading: called with number and passage; the default is "[1] title (source)", of the node's metadata.
        cut: cut the first node that does not fit, after a word, and stop there.

    Raises:
        InvalidInputError, InvalidTypeError: for arguments that cannot be used.
    """
    return pack(_passages(nodes), max_tokens=max_tokens, counter=counter, heading=heading, cut=cut)


def _passages(nodes: Iterable[NodeWithScore | BaseNode]) -> Iterator[Passage]:
    for i, found in enumerate(nodes):
        node = found.node if isinstance(found, NodeWithScore) else found
        if not isinstance(node, BaseNode):
            raise InvalidTypeError(f"nodes[{i}] is a {type(found).__name__}; give nodes or what a retriever found")
        title = node.metadata.get("title")
        text = node.get_content(MetadataMode.NONE)
        yield Passage(node.node_id, text, title if isinstance(title, str) else None, dict(node.metadata))
