"""LangChain retriever over sidr-rag."""

from __future__ import annotations

from langchain_sidr.retrievers import SiDRRetriever

__version__ = "0.1.0"

__all__ = ["SiDRRetriever", "__version__"]
