"""`device=` and `kernel=` reach the engine, with the results of the processor's search."""

from __future__ import annotations

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.retrievers.sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import InvalidInputError


def device_nodes() -> list[TextNode]:
    texts = ["copper harbor ledger", "copper kettle", "winter river"]
    return [TextNode(text=text, id_=f"n{i}") for i, text in enumerate(texts)]


def test_a_retriever_searches_where_it_is_told() -> None:
    pytest.importorskip("torch")
    retriever = SiDRRetriever.from_defaults(
        device_nodes(), similarity_top_k=2, first_stage="lexical", device="cpu", kernel="torch"
    )
    assert [found.node.node_id for found in retriever.retrieve("copper kettle")] == ["n1", "n0"]
    assert retriever.engine.info()["device_bytes"] > 0


def test_a_vector_store_searches_where_it_is_told() -> None:
    pytest.importorskip("torch")
    store = SiDRVectorStore(device="cpu", kernel="torch")
    store.add(device_nodes())
    assert store.query(VectorStoreQuery(query_str="copper kettle", similarity_top_k=1)).ids == ["n1"]
    assert store.engine.info()["device_bytes"] > 0


def test_a_kernel_that_cannot_run_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(InvalidInputError, match="kernel='triton' needs a CUDA device"):
        SiDRRetriever.from_defaults(device_nodes(), kernel="triton", device="cpu")
