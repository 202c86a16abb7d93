"""LangChain over sidr-rag: retriever, vector store, sparse embeddings, fusion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_sidr.hybrid import HybridRetriever
from langchain_sidr.packing import pack_documents
from langchain_sidr.retrievers import SiDRRetriever
from langchain_sidr.vectorstores import SiDRVectorStore

if TYPE_CHECKING:
    from langchain_sidr.milvus_embeddings import SiDRMilvusEmbeddings
    from langchain_sidr.sparse_embeddings import SiDRSparseEmbeddings

__version__ = "0.1.0"

__all__ = [
    "HybridRetriever",
    "SiDRMilvusEmbeddings",
    "SiDRRetriever",
    "SiDRSparseEmbeddings",
    "SiDRVectorStore",
    "__version__",
    "pack_documents",
]


def __getattr__(name: str) -> Any:
    # Each of them needs a package that the others do not.
    if name == "SiDRSparseEmbeddings":
        from langchain_sidr.sparse_embeddings import SiDRSparseEmbeddings

        return SiDRSparseEmbeddings
    if name == "SiDRMilvusEmbeddings":
        from langchain_sidr.milvus_embeddings import SiDRMilvusEmbeddings

        return SiDRMilvusEmbeddings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
