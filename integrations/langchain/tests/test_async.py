from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_sidr import SiDRRetriever

TEXTS = ["copper wire", "copper pipe", "falcon nest", "river stone"]
QUERIES = ["copper", "falcon", "river", "wire"] * 5


async def test_searches_never_block_the_loop(
    slow_encoder: Callable[..., None], never_blocked: Callable[..., Any]
) -> None:
    # R50
    retriever = SiDRRetriever.from_texts(TEXTS, ids=["w", "p", "f", "r"])
    expected = retriever.batch(QUERIES)
    slow_encoder(retriever.engine, QUERIES, 0.3)
    for one_by_one, together in await never_blocked(
        lambda: asyncio.gather(
            asyncio.gather(*(retriever.ainvoke(query) for query in QUERIES)), retriever.abatch(QUERIES[:4])
        )
    ):
        assert one_by_one == expected
        assert together == expected[:4]


async def test_options_reach_an_async_call() -> None:
    retriever = SiDRRetriever.from_texts(TEXTS, [{"n": i} for i in range(4)], k=1)
    assert [d.metadata["n"] for d in await retriever.ainvoke("copper", k=4, filter={"n": 1})] == [1]


async def test_changes_have_async_twins(tmp_path: Path) -> None:
    retriever = SiDRRetriever.from_texts([], path=tmp_path / "store", k=1)
    assert await retriever.aadd_texts(["copper wire"], [{"n": 1}], ids=["w"]) == ["w"]
    assert await retriever.aadd_documents([Document("falcon nest", id="f")]) == ["f"]
    assert [d.id for d in await retriever.ainvoke("falcon")] == ["f"]
    assert [d.metadata for d in await retriever.aget_by_ids(["w"])] == [{"n": 1}]
    assert await retriever.adelete(["f", "absent"]) == {"num_deleted": 1}
    assert await retriever.ainvoke("falcon") == []


async def test_changes_never_block_the_loop(never_blocked: Callable[..., Any], tmp_path: Path) -> None:
    retriever = SiDRRetriever.from_texts([], path=tmp_path / "store")
    (tmp_path / "files").mkdir()
    for i in range(20):
        (tmp_path / "files" / f"{i}.txt").write_text(f"Sentence {i} about copper. " * 500, encoding="utf-8")
    documents = [Document(f"copper {i} " * 50, id=str(i)) for i in range(5000)]

    async def change() -> int:
        await retriever.aadd_documents(documents)
        report = await retriever.aadd_files(tmp_path / "files")
        await retriever.aget_by_ids([str(i) for i in range(1000)])
        await retriever.adelete([str(i) for i in range(5000)])
        return len(report.written)

    await never_blocked(change)
    assert len(retriever.engine) > 20


async def test_adding_and_searching_at_once() -> None:
    retriever = SiDRRetriever.from_texts([f"anchor {i}" for i in range(50)], k=60)

    async def search() -> None:
        for _ in range(5):
            documents = await retriever.ainvoke("anchor", first_stage="lexical")
            assert len(documents) == 50
            assert all(d.page_content.startswith("anchor") for d in documents)

    async def add_and_delete() -> None:
        for _ in range(5):
            ids = await retriever.aadd_texts(["river stone"] * 3)
            assert await retriever.adelete(ids) == {"num_deleted": 3}

    await asyncio.gather(search(), search(), add_and_delete(), add_and_delete())
    assert len(retriever.engine) == 50
