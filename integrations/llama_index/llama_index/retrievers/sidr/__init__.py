"""LlamaIndex over sidr-rag: retriever, vector store, sparse embedding."""

from __future__ import annotations

from llama_index.retrievers.sidr.base import SiDRRetriever
from llama_index.retrievers.sidr.packing import pack_nodes
from llama_index.retrievers.sidr.pipelines import NoEmbedding
from llama_index.retrievers.sidr.sparse import SiDRSparseEmbedding
from llama_index.retrievers.sidr.vector_store import SiDRVectorStore

__version__ = "0.1.0"

__all__ = ["NoEmbedding", "SiDRRetriever", "SiDRSparseEmbedding", "SiDRVectorStore", "__version__", "pack_nodes"]
