"""Found documents as one numbered text within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from langchain_core.documents import Document

from sidr_rag import InvalidTypeError, Passage
from sidr_rag.packing import Packed, pack
from sidr_rag.token_counting import Counter


def pack_documents(
    documents: Iterable[Document],
    *,
    max_tokens: int,
    counter: Counter = "auto",
    heading: Callable[[int, Passage], str] | None = None,
    cut: bool = False,
    title_key: str | None = "title",
) -> Packed:
    """`sidr_rag.packing.pack` for documents, best first: `pack_documents(retriever.invoke(q), max_tokens=2000).text`.

    Args:
        documents: of any retriever; one without an id is told apart by its place.
        max_tokens: the budget for the whole text, headings included.
        counter: what counts tokens; see `sidr_rag.token_counting.token_counter`. Nothing is ever downloaded.
        heading: called with number and passage; the default is "[1] title (source)".
        cut: cut the first document that does not fit, after a word, and stop there.
        title_key: the metadata key of the title.

    Raises:
        InvalidInputError, InvalidTypeError: for arguments that cannot be used.
    """
    return pack(_passages(documents, title_key), max_tokens=max_tokens, counter=counter, heading=heading, cut=cut)


def _passages(documents: Iterable[Document], title_key: str | None) -> Iterator[Passage]:
    for i, document in enumerate(documents):
        if not isinstance(document, Document):
            raise InvalidTypeError(f"documents[{i}] is a {type(document).__name__}; give Document objects")
        title: Any = document.metadata.get(title_key) if title_key is not None else None
        own_id = document.id if document.id is not None else f"#{i}"
        yield Passage(own_id, document.page_content, title if isinstance(title, str) else None, dict(document.metadata))
