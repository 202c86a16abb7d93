"""SiDRVectorStore: the engine with the interface and the promises of a LangChain vector store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from typing_extensions import Self

from langchain_sidr.documents import document_columns, to_document
from langchain_sidr.options import SEARCH_OPTIONS, only_known, query_text
from langchain_sidr.reasons import REQUESTS, flag, with_reasons
from langchain_sidr.storing import StoringMixin, in_thread
from sidr_rag import InvalidTypeError, SiDR
from sidr_rag.inputs import ids_list
from sidr_rag.similarity import search_diverse, search_filled, search_relevance
from sidr_rag.types import Passage, SearchResult

_OPTIONS = (*(name for name in SEARCH_OPTIONS if name != "k"), *REQUESTS)
Found = TypeVar("Found")


class SiDRVectorStore(StoringMixin, VectorStore):
    """Documents found by their tokens, behind the interface of a vector store; there is no embedding object.

    As the interface asks, a search gives k documents as long as there are so many: where fewer share a token with the
    question, the oldest others follow with a score of 0. `SiDRRetriever` leaves them out.

    Every search takes the options of `SiDR.search` by name, such as `filter`, `rerank` or `search`; and `explain=True`
    and `costs=True`, which put the parts of the first-stage score by token, and what the search cost, into the metadata
    of found documents, under "sidr_explanation" and "sidr_costs".

    Args:
        engine: the `sidr_rag.SiDR` that does the work.
        title_key: the metadata key of a passage's title in documents that have no such key. None: no title.
        score_key: the metadata key of the score in found documents. None: no score.
        id_key: the metadata key of the id in found documents. None: the id is in `Document.id` alone.
    """

    def __init__(
        self,
        engine: SiDR,
        *,
        title_key: str | None = "title",
        score_key: str | None = None,
        id_key: str | None = None,
    ) -> None:
        if not isinstance(engine, SiDR):
            raise InvalidTypeError(f"engine is a {type(engine).__name__}; give a SiDR, or use from_texts or open")
        self.engine = engine
        self.title_key = title_key
        self.score_key = score_key
        self.id_key = id_key

    # Making

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings | None = None,
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        title_key: str | None = "title",
        score_key: str | None = None,
        id_key: str | None = None,
        **options: Any,
    ) -> Self:
        """Index texts; they can be searched when this returns.

        Args:
            texts: what to index; kept exactly as given.
            embedding: None; the engine has its own encoder.
            metadatas: JSON-like, one for each text.
            ids: one for each text; None makes one.
            title_key: see the class.
            score_key: see the class.
            id_key: see the class.
            options: of `SiDR.from_texts`: `path`, `overwrite`, `titles`, `model`, `weighting` and so on.

        Raises:
            InvalidInputError, InvalidTypeError: for bad arguments, such as an embedding; nothing is then stored.
            IndexFormatError: if `path` holds a store and `overwrite` is False.
        """
        if embedding is not None:
            raise InvalidTypeError(
                f"embedding is a {type(embedding).__name__}; SiDR has its own encoder, chosen by `model`; give None"
            )
        engine = SiDR.from_texts(texts, ids=ids, metadatas=metadatas, **options)
        return cls(engine, title_key=title_key, score_key=score_key, id_key=id_key)

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        embedding: Embeddings | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        **options: Any,
    ) -> Self:
        """The same for documents, whose ids are kept (`ids` replaces them); `options` as for `from_texts`."""
        return cls.from_texts(embedding=embedding, **document_columns(documents, ids), **options)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        title_key: str | None = "title",
        score_key: str | None = None,
        id_key: str | None = None,
        **options: Any,
    ) -> Self:
        """Open the store in a folder; `options` of `SiDR.open`: `create`, `read_only`, `model` and so on.

        Raises:
            IndexFormatError: if the folder is no store, is damaged, or was made with another tokenizer or format.
        """
        return cls(SiDR.open(path, **options), title_key=title_key, score_key=score_key, id_key=id_key)

    @classmethod
    async def afrom_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings | None = None,
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        **options: Any,
    ) -> Self:
        """`from_texts` in a thread."""
        return await in_thread(cls.from_texts, texts, embedding, metadatas, ids=ids, **options)

    @classmethod
    async def afrom_documents(
        cls, documents: Iterable[Document], embedding: Embeddings | None = None, **options: Any
    ) -> Self:
        """`from_documents` in a thread."""
        return await in_thread(cls.from_documents, documents, embedding, **options)

    # Changing; adding is in `StoringMixin`

    def delete(self, ids: Iterable[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents, all or none; without ids, every document. Unknown ids are ignored; the answer is True."""
        self.engine.delete(self.engine.ids() if ids is None else ids_list(ids))
        return True

    # Searching; the async twins of the base class work in a thread

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """The k best documents, filled up; `options` of `SiDR.search`.

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
        """
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    def similarity_search_with_score(self, query: str, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        """The same with scores: the re-ranking's for re-ranked documents, else the first stage's; higher is better."""
        return [
            (self._document(result.passage, result.score, more), result.score)
            for result, more in self._told(
                query, options, lambda chosen: search_filled(self.engine, query, k=k, **chosen), _id_of
            )
        ]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Documents that are relevant and unlike each other, by their bags of tokens.

        Args:
            query: the question.
            k: how many.
            fetch_k: how many of the best to choose from.
            lambda_mult: 1 for relevance alone, 0 for unlikeness alone.
            options: of `SiDR.search`, without `rerank`.

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
        """
        diversity: dict[str, Any] = {"fetch_k": fetch_k, "relevance_weight": lambda_mult}
        return [
            self._document(result.passage, result.score, more)
            for result, more in self._told(
                query, options, lambda chosen: search_diverse(self.engine, query, k=k, **diversity, **chosen), _id_of
            )
        ]

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        # In place of a function of the score alone: what a score can reach depends on the question.
        return [
            (self._document(passage, share, more), share)
            for (passage, share), more in self._told(
                query,
                options,
                lambda chosen: search_relevance(self.engine, query, k=k, **chosen),
                lambda found: found[0].id,
            )
        ]

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        return await in_thread(self._similarity_search_with_relevance_scores, query, k, **options)

    def _told(
        self,
        query: str,
        options: Mapping[str, Any],
        find: Callable[[dict[str, Any]], Sequence[Found]],
        passage_id: Callable[[Found], str],
    ) -> list[tuple[Found, dict[str, Any]]]:
        """What a search finds, given its checked options, each with the metadata that the options ask for."""
        query_text(query)
        chosen = only_known(options, _OPTIONS)
        asked = {name: flag(name, chosen.pop(name, False)) for name in REQUESTS}
        return with_reasons(self.engine, query, lambda: find(chosen), passage_id, chosen, **asked)

    def _document(self, passage: Passage, score: float, more: Mapping[str, Any]) -> Document:
        keys = {"title_key": self.title_key, "id_key": self.id_key, "score_key": self.score_key}
        return to_document(passage, score=score, more=more, **keys)


def _id_of(result: SearchResult) -> str:
    return result.passage.id
