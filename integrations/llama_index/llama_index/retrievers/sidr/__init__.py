"""LlamaIndex retriever over sidr-rag."""

from __future__ import annotations

from llama_index.retrievers.sidr.base import SiDRRetriever

__version__ = "0.1.0"

__all__ = ["SiDRRetriever", "__version__"]
