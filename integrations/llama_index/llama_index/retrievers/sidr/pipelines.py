"""A vector store inside LlamaIndex's index and ingestion pipeline, without an embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding, Embedding
from llama_index.core.indices import VectorStoreIndex
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import TransformComponent
from llama_index.core.settings import Settings
from llama_index.core.storage.storage_context import StorageContext
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from sidr_rag import InvalidInputError


class NoEmbedding(BaseEmbedding):
    """An embedding model that computes nothing, where LlamaIndex insists on one and the vector store needs none.

    Give it as `embed_model` of an index, or as the last transformation of an ingestion pipeline, which drops nodes
    that have no embedding at all.
    """

    def __init__(self, **options: Any) -> None:
        """Takes the fields of `BaseEmbedding`; none is needed."""
        super().__init__(**{"model_name": "none", "embed_batch_size": 2048, **options})

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex knows the class."""
        return "NoEmbedding"

    def _get_query_embedding(self, query: str) -> Embedding:
        return [0.0]

    async def _aget_query_embedding(self, query: str) -> Embedding:
        return [0.0]

    def _get_text_embedding(self, text: str) -> Embedding:
        return [0.0]

    async def _aget_text_embedding(self, text: str) -> Embedding:
        return [0.0]


class StoreIndex(VectorStoreIndex):
    """An index whose retrievers search all nodes.

    Those of `VectorStoreIndex` search only the `IndexNode`s and `ImageNode`s as soon as one was inserted, if the vector
    store keeps the texts.
    """

    def as_retriever(self, **kwargs: Any) -> BaseRetriever:
        """A retriever; `kwargs` of `VectorIndexRetriever`, such as `similarity_top_k`, `filters` and `doc_ids`."""
        return VectorIndexRetriever(
            self, callback_manager=self._callback_manager, object_map=self._object_map, **kwargs
        )


def index_of(store: BasePydanticVectorStore, options: dict[str, Any]) -> VectorStoreIndex:
    """An index over a store that keeps texts; `options` of `VectorStoreIndex`.

    Raises:
        InvalidInputError: for a storage context that has another vector store.
    """
    context = options.pop("storage_context", None) or StorageContext.from_defaults(vector_store=store)
    if context.vector_store is not store:
        raise InvalidInputError("storage_context has another vector store; make it with vector_store=this one")
    return StoreIndex(**{"nodes": [], "embed_model": NoEmbedding(), **options, "storage_context": context})


def pipeline_of(
    store: BasePydanticVectorStore, transformations: Sequence[TransformComponent] | None, options: dict[str, Any]
) -> IngestionPipeline:
    """A pipeline that ends in a store; `options` of `IngestionPipeline`."""
    steps = list(Settings.transformations if transformations is None else transformations)
    if not any(isinstance(step, BaseEmbedding) for step in steps):
        steps.append(NoEmbedding())
    return IngestionPipeline(**{**options, "transformations": steps, "vector_store": store})
