"""HybridRetriever: several retrievers as one, fused by the ranks of document ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, RetrieverLike
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, field_validator, model_validator
from typing_extensions import Self

from sidr_rag import InvalidInputError
from sidr_rag.fusion import reciprocal_rank_fusion
from sidr_rag.inputs import as_count


class HybridRetriever(BaseRetriever):
    """Asks every retriever and fuses the answers by reciprocal rank; documents of one id are one document.

    The first retriever that found a document gives its text and metadata. Scores play no part, so any retrievers go
    together, such as a `SiDRRetriever` and a vector store's.

    Attributes:
        retrievers: at least one; also with configurable fields.
        weights: one for each retriever; None weighs all alike.
        k: how many documents.
        constant: the constant of reciprocal rank fusion: how little the first places stand out.
        id_key: the metadata key of the id, for retrievers that leave `Document.id` empty.
        score_key: the metadata key of the fused score in returned documents. None: no score.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, validate_assignment=True)

    retrievers: list[RetrieverLike]
    weights: list[float] | None = None
    k: int = 4
    constant: float = 60.0
    id_key: str | None = None
    score_key: str | None = None

    @field_validator("k", mode="before")
    @classmethod
    def _check_k(cls, value: Any) -> int:
        return as_count("k", value)

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if not self.retrievers:
            raise InvalidInputError("retrievers is empty; give at least one")
        reciprocal_rank_fusion([()] * len(self.retrievers), weights=self.weights, constant=self.constant)
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        config = RunnableConfig(callbacks=run_manager.get_child())
        return self._fused([retriever.invoke(query, config) for retriever in self.retrievers], k)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        config = RunnableConfig(callbacks=run_manager.get_child())
        return self._fused(await asyncio.gather(*(r.ainvoke(query, config) for r in self.retrievers)), k)

    def _fused(self, answers: Sequence[Sequence[Document]], k: int | None) -> list[Document]:
        wanted = self.k if k is None else as_count("k", k)
        by_id: dict[str, Document] = {}
        rankings = []
        for i, answer in enumerate(answers):
            ranking = [self._id(i, document) for document in answer]
            rankings.append(ranking)
            for key, document in zip(ranking, answer, strict=True):
                by_id.setdefault(key, document)
        fused = reciprocal_rank_fusion(rankings, weights=self.weights, constant=self.constant)
        return [self._document(by_id[key], score) for key, score in fused[:wanted]]

    def _id(self, retriever: int, document: Document) -> str:
        own = document.id if document.id is not None else document.metadata.get(self.id_key) if self.id_key else None
        if own is None:
            raise InvalidInputError(
                f"retrievers[{retriever}] found a document without an id; give its documents ids, or name the metadata "
                "key that has them as id_key"
            )
        return str(own)

    def _document(self, document: Document, score: float) -> Document:
        metadata = dict(document.metadata)
        if self.score_key is not None:
            metadata[self.score_key] = score
        # Not validated, because validation refuses lone surrogates, which a stored text may hold.
        return Document.model_construct(id=document.id, page_content=document.page_content, metadata=metadata)
