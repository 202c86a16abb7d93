"""LangChain's own suite, as it is."""

from __future__ import annotations

from functools import cache
from typing import Any

from langchain_core.retrievers import BaseRetriever
from langchain_sidr import SiDRRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests

from sidr_rag import SiDR


@cache
def five_passages() -> SiDR:
    return SiDR.from_texts([f"copper wire number {word}" for word in ("one", "two", "three", "four", "five")])


class TestSiDRRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return SiDRRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"engine": five_passages()}

    @property
    def retriever_query_example(self) -> str:
        return "copper wire"
