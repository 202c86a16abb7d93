"""SiDRSparseEmbeddings: for the sparse and hybrid modes of langchain-qdrant's vector store."""

from __future__ import annotations

try:
    from langchain_qdrant import SparseEmbeddings
    from langchain_qdrant.sparse_embeddings import SparseVector
except ModuleNotFoundError as error:
    raise ImportError(
        f"SiDRSparseEmbeddings needs the package {error.name!r}: pip install 'langchain-sidr[qdrant]'"
    ) from error

from langchain_sidr.encoding import BagEncoder


class SiDRSparseEmbeddings(BagEncoder, SparseEmbeddings):
    """Sparse vectors for `QdrantVectorStore(sparse_embedding=...)`; see `BagEncoder` for arguments and meaning.

    The async methods work in a thread.
    """

    def embed_documents(self, texts: list[str]) -> list[SparseVector]:
        """Bags of tokens: weight 1 for each distinct token."""
        return [SparseVector(indices=d.tolist(), values=w.tolist()) for d, w in self.bags(texts)]

    def embed_query(self, text: str) -> SparseVector:
        """The question's vector."""
        dims, weights = self.query_vectors([text]).row(0)
        return SparseVector(indices=dims.tolist(), values=weights.tolist())
