"""LangChain's own suites, as they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from functools import cache
from typing import Any

import pytest
from langchain_core.indexing.base import DocumentIndex
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_sidr import HybridRetriever, SiDRRetriever, SiDRVectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests
from langchain_tests.integration_tests.indexer import AsyncDocumentIndexTestSuite, DocumentIndexerTestSuite

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


class TestHybridRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return HybridRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        engine = five_passages()
        return {
            "retrievers": [
                SiDRRetriever(engine=engine, k=5),
                SiDRRetriever(engine=engine, k=5, first_stage="lexical"),
            ]
        }

    @property
    def retriever_query_example(self) -> str:
        return "copper wire"


class TestSiDRVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> Generator[VectorStore, None, None]:
        store = SiDRVectorStore.from_texts([])
        yield store
        store.close()


class TestSiDRVectorStoreOnDisk(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Any) -> Generator[VectorStore, None, None]:
        store = SiDRVectorStore.open(tmp_path / "store", create=True)
        yield store
        store.close()


class TestSiDRDocumentIndex(DocumentIndexerTestSuite):
    @pytest.fixture
    def index(self) -> Generator[DocumentIndex, None, None]:
        retriever = SiDRRetriever.from_texts([])
        yield retriever
        retriever.close()


class TestSiDRAsyncDocumentIndex(AsyncDocumentIndexTestSuite):
    @pytest.fixture
    async def index(self) -> AsyncGenerator[DocumentIndex, None]:
        retriever = await SiDRRetriever.afrom_texts([])
        yield retriever
        retriever.close()
