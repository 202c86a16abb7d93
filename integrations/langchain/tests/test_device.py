"""`device=` and `kernel=` reach the engine, with the results of the processor's search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import InvalidInputError

TEXTS = ["copper harbor ledger", "copper kettle", "winter river"]


def test_a_retriever_searches_where_it_is_told(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options: dict[str, Any] = {"k": 2, "first_stage": "lexical", "device": "cpu"}
    there = SiDRRetriever.from_texts(TEXTS, path=tmp_path / "s", kernel="torch", **options)
    found = there.invoke("copper kettle")
    assert [d.page_content for d in found] == ["copper kettle", "copper harbor ledger"]
    assert there.engine.info()["device_bytes"] > 0
    there.engine.close()
    with SiDRRetriever.open(tmp_path / "s", kernel="torch", **options).engine as engine:
        engine.search("copper", first_stage="lexical")
        assert engine.info()["device_bytes"] > 0


def test_a_vector_store_searches_where_it_is_told() -> None:
    pytest.importorskip("torch")
    store = SiDRVectorStore.from_texts(TEXTS, kernel="torch", device="cpu")
    assert store.similarity_search("copper kettle", k=1)[0].page_content == "copper kettle"
    assert store.engine.info()["device_bytes"] > 0


def test_a_kernel_that_cannot_run_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(InvalidInputError, match="kernel='triton' needs a CUDA device"):
        SiDRRetriever.from_texts(TEXTS, kernel="triton", device="cpu")
