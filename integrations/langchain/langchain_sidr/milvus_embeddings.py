"""SiDRMilvusEmbeddings: for the sparse fields of langchain-milvus' vector store."""

from __future__ import annotations

try:
    from langchain_milvus.utils.sparse import BaseSparseEmbedding
except ModuleNotFoundError as error:
    raise ImportError(
        f"SiDRMilvusEmbeddings needs the package {error.name!r}: pip install 'langchain-sidr[milvus]'"
    ) from error

from langchain_sidr.encoding import BagEncoder


class SiDRMilvusEmbeddings(BagEncoder, BaseSparseEmbedding):
    """Sparse vectors for `Milvus(embedding_function=...)`; see `BagEncoder` for arguments and meaning.

    The async methods work in a thread.
    """

    def embed_documents(self, texts: list[str]) -> list[dict[int, float]]:
        """Bags of tokens: weight 1 for each distinct token."""
        return [dict(zip(d.tolist(), w.tolist(), strict=True)) for d, w in self.bags(texts)]

    def embed_query(self, query: str) -> dict[int, float]:
        """The question's vector."""
        dims, weights = self.query_vectors([query]).row(0)
        return dict(zip(dims.tolist(), weights.tolist(), strict=True))
