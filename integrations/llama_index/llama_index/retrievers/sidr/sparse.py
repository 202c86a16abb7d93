"""SiDRSparseEmbedding: for the sparse and hybrid modes of other vector stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from llama_index.core.base.embeddings.base_sparse import BaseSparseEmbedding, SparseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from sidr_rag import SparseVectors
from sidr_rag.encoder import Encoder, load_encoder

Batch = tuple[list[list[int]], list[list[float]]]


class SiDRSparseEmbedding(BaseSparseEmbedding):
    """The two sides of the paper's beta search: binary texts, made without a model, and V_theta of questions.

    A store that scores by inner product then ranks as `SiDR` with weighting="binary" does. Other weightings need
    statistics of the whole collection, which such a store does not keep. The methods `sparse_doc_fn` and
    `sparse_query_fn` are what `QdrantVectorStore` takes under these names. The async methods work in a thread.
    """

    _encoder: Encoder = PrivateAttr()
    _query_repr: str = PrivateAttr()
    _max_active_dims: int | None = PrivateAttr()

    def __init__(
        self,
        model: str | Path | Encoder = "default",
        *,
        device: str = "auto",
        query_repr: str = "theta",
        max_active_dims: int | None = None,
        embed_batch_size: int = 256,
        num_workers: int | None = None,
        **options: Any,
    ) -> None:
        """Load the model.

        Args:
            model: "default" (bundled), a folder, a name on the model hub (needs `sidr-rag[torch]`), or an `Encoder`
                that is loaded already, such as `retriever.engine.encoder`.
            device: "auto", "cpu" or "cuda".
            query_repr: "theta", "lex", "bin" or "bot" (the question's own words; no model).
            max_active_dims: cut the question's vector to this many dimensions.
            embed_batch_size: texts in one call of LlamaIndex's batch methods.
            num_workers: batches at once in its async ones.
            options: of `sidr_rag.encoder.load_encoder`, such as `dtype`.

        Raises:
            ModelNotFoundError: if the model is not here and cannot be fetched.
            InvalidInputError, InvalidTypeError: if an argument cannot be used.
        """
        encoder = model if isinstance(model, Encoder) else load_encoder(model, device=device, **options)
        super().__init__(
            model_name=encoder.config.name or "sidr", embed_batch_size=embed_batch_size, num_workers=num_workers
        )
        self._encoder = encoder
        self._query_repr = query_repr
        self._max_active_dims = max_active_dims
        self._query_vectors([])  # so that a bad option is told here

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex knows the class."""
        return "SiDRSparseEmbedding"

    def sparse_doc_fn(self, texts: list[str]) -> Batch:
        """Dimensions and weights of texts: weight 1 for each distinct token."""
        return _batch(self._bags(texts))

    def sparse_query_fn(self, texts: list[str]) -> Batch:
        """Dimensions and weights of questions."""
        return _batch(self._query_vectors(texts))

    def _bags(self, texts: list[str]) -> SparseVectors:
        return self._encoder.encode_passages(texts, representation="bot")

    def _query_vectors(self, texts: list[str]) -> SparseVectors:
        return self._encoder.encode_binary_queries(
            texts, representation=self._query_repr, max_active_dims=self._max_active_dims
        )

    def _get_query_embedding(self, query: str) -> SparseEmbedding:
        return _rows(self._query_vectors([query]))[0]

    async def _aget_query_embedding(self, query: str) -> SparseEmbedding:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> SparseEmbedding:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> SparseEmbedding:
        return await asyncio.to_thread(self._get_text_embedding, text)

    def _get_text_embeddings(self, texts: list[str]) -> list[SparseEmbedding]:
        return _rows(self._bags(texts))

    async def _aget_text_embeddings(self, texts: list[str]) -> list[SparseEmbedding]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def _rows(vectors: SparseVectors) -> list[SparseEmbedding]:
    return [dict(zip(dims.tolist(), weights.tolist(), strict=True)) for dims, weights in vectors]


def _batch(vectors: SparseVectors) -> Batch:
    return [dims.tolist() for dims, _ in vectors], [weights.tolist() for _, weights in vectors]
