"""LangChain's documents to and from the engine's passages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import tee
from typing import Any

from langchain_core.documents import Document

from sidr_rag import InvalidTypeError, Passage


def document_columns(documents: Iterable[Document], ids: Iterable[str | None] | None = None) -> dict[str, Any]:
    """Documents as the `texts`, `ids` and `metadatas` of the engine.

    Args:
        documents: any iterable, consumed once, as the engine reads the columns in step.
        ids: in place of the documents' own ids; as many as documents.

    Raises:
        InvalidTypeError: while the columns are read, if one is no `Document`; names its position.
    """
    if isinstance(documents, (str, bytes, Document)) or not isinstance(documents, Iterable):
        raise InvalidTypeError(f"documents is a {type(documents).__name__}; give a list of Document objects")
    texts, own_ids, metadatas = tee(_checked(documents), 3)
    return {
        "texts": (document.page_content for document in texts),
        "ids": (document.id for document in own_ids) if ids is None else ids,
        "metadatas": (document.metadata for document in metadatas),
    }


def to_document(
    passage: Passage,
    *,
    title_key: str | None = None,
    id_key: str | None = None,
    score_key: str | None = None,
    score: float | None = None,
    more: Mapping[str, Any] | None = None,
) -> Document:
    """A passage as a new `Document`, sharing nothing with the store.

    Args:
        passage: a private copy, as the engine returns it.
        title_key: where to put the passage's title, if it has one and the metadata have no such key.
        id_key: where to put the id as well; whatever the metadata have there is replaced in this copy.
        score_key: where to put the score; whatever the metadata have there is replaced in this copy.
        score: None for a passage that was not searched for.
        more: further metadata for this copy; they replace what the metadata have there.
    """
    metadata = dict(passage.metadata)
    if title_key is not None and passage.title is not None:
        metadata.setdefault(title_key, passage.title)
    if id_key is not None:
        metadata[id_key] = passage.id
    if score_key is not None and score is not None:
        metadata[score_key] = score
    metadata.update(more or {})
    # Not validated, because validation refuses lone surrogates, which a stored text may hold.
    return Document.model_construct(id=passage.id, page_content=passage.text, metadata=metadata)


def _checked(documents: Iterable[Document]) -> Iterator[Document]:
    for i, document in enumerate(documents):
        if not isinstance(document, Document):
            raise InvalidTypeError(f"documents[{i}] is a {type(document).__name__}; give Document objects")
        yield document
