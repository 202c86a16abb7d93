"""LangChain's indexing keeps a store in step with a source, in every cleanup mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, aindex, index
from langchain_sidr import SiDRRetriever, SiDRVectorStore

Destination = SiDRRetriever | SiDRVectorStore


@pytest.fixture(params=[SiDRRetriever, SiDRVectorStore])
def destination(request: pytest.FixtureRequest) -> Iterator[Destination]:
    made = request.param.from_texts([])
    yield made
    made.close()


@pytest.fixture
def records() -> InMemoryRecordManager:
    manager = InMemoryRecordManager(namespace="test")
    manager.create_schema()
    return manager


def article(text: str, source: str) -> Document:
    return Document(text, metadata={"source": source})


FIRST = [article("copper wire", "metals"), article("copper pipe", "metals"), article("falcon nest", "birds")]
# One text of "metals" is changed, the other is as it was, and "birds" is not there.
SECOND = [article("copper wire", "metals"), article("copper tube", "metals")]
AFTER = {
    None: {"copper wire", "copper pipe", "copper tube", "falcon nest"},
    "incremental": {"copper wire", "copper tube", "falcon nest"},
    "scoped_full": {"copper wire", "copper tube", "falcon nest"},
    "full": {"copper wire", "copper tube"},
}


def options(cleanup: str | None) -> dict[str, Any]:
    return {"cleanup": cleanup, "source_id_key": "source", "key_encoder": "sha256"}


def texts_in(destination: Destination) -> set[str]:
    return {passage.text for passage in destination.engine.get(destination.engine.ids())}


@pytest.mark.parametrize("cleanup", list(AFTER), ids=str)
def test_every_cleanup_mode(destination: Destination, records: InMemoryRecordManager, cleanup: Any) -> None:
    assert index(FIRST, records, destination, **options(cleanup))["num_added"] == 3
    again = index(FIRST, records, destination, **options(cleanup))
    assert (again["num_added"], again["num_skipped"], again["num_deleted"]) == (0, 3, 0)
    changed = index(SECOND, records, destination, **options(cleanup))
    assert (changed["num_added"], changed["num_skipped"]) == (1, 1)
    assert changed["num_deleted"] == 4 - len(AFTER[cleanup])
    assert texts_in(destination) == AFTER[cleanup]


@pytest.mark.parametrize("cleanup", list(AFTER), ids=str)
async def test_every_cleanup_mode_async(destination: Destination, records: InMemoryRecordManager, cleanup: Any) -> None:
    await aindex(FIRST, records, destination, **options(cleanup))
    changed = await aindex(SECOND, records, destination, **options(cleanup))
    assert changed["num_deleted"] == 4 - len(AFTER[cleanup])
    assert texts_in(destination) == AFTER[cleanup]


@pytest.mark.parametrize("batch_size", [1, 2])
def test_small_batches_and_a_forced_update(
    destination: Destination, records: InMemoryRecordManager, batch_size: int
) -> None:
    index(FIRST, records, destination, batch_size=batch_size, **options("full"))
    forced = index(FIRST, records, destination, batch_size=batch_size, force_update=True, **options("full"))
    assert (forced["num_updated"], forced["num_deleted"]) == (3, 0)
    assert texts_in(destination) == {d.page_content for d in FIRST}
    assert index([], records, destination, **options("full"))["num_deleted"] == 3
    assert len(destination.engine) == 0


def test_a_bad_document_stores_nothing_of_its_batch(records: InMemoryRecordManager) -> None:
    retriever = SiDRRetriever.from_texts([])
    # A key of its own, since LangChain's cannot be made of such metadata.
    bad = [Document("copper", id="1"), Document("pipe", id="2", metadata={"x": object()})]
    with pytest.raises(TypeError, match="metadata"):
        index(bad, records, retriever, cleanup=None, key_encoder=lambda d: str(d.id))
    assert len(retriever.engine) == 0


def test_it_is_a_document_index_of_its_own(records: InMemoryRecordManager) -> None:
    retriever = SiDRRetriever.from_texts([], title_key=None)
    assert retriever.upsert([Document("copper", id="a"), Document("river", id="b")]) == {
        "succeeded": ["a", "b"],
        "failed": [],
    }
    assert [d.id for d in retriever.get(["b", "absent", "a"])] == ["b", "a"]
    with pytest.raises(ValueError, match="ids=None"):
        retriever.delete()
    assert retriever.delete(["a"]) == {"num_deleted": 1}
