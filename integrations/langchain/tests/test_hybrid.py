from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField
from langchain_sidr import HybridRetriever, SiDRRetriever

from sidr_rag import InvalidInputError


class ListRetriever(BaseRetriever):
    """Answers every question with the same documents."""

    documents: list[Document]
    fail: bool = False

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        if self.fail:
            raise RuntimeError("the other retriever is down")
        return self.documents


def listed(*ids: str | None, **metadata: Any) -> ListRetriever:
    return ListRetriever(documents=[Document(f"text of {i}", id=i, metadata=dict(metadata)) for i in ids])


def test_fused_by_id_whatever_the_scores() -> None:
    hybrid = HybridRetriever(retrievers=[listed("a", "b", "c", source="first"), listed("c", "a", source="second")])
    found = hybrid.invoke("anything")
    assert [d.id for d in found] == ["a", "c", "b"]
    assert [d.metadata for d in found] == [{"source": "first"}] * 3
    assert [d.id for d in hybrid.invoke("anything", k=1)] == ["a"]


def test_weights_constant_and_score() -> None:
    first, second = listed("a", "b"), listed("b", "a")
    hybrid = HybridRetriever(retrievers=[first, second], weights=[1, 2], constant=10, score_key="rrf")
    found = hybrid.invoke("anything")
    assert [(d.id, d.metadata["rrf"]) for d in found] == [("b", 1 / 12 + 2 / 11), ("a", 1 / 11 + 2 / 12)]
    assert first.documents[0].metadata == {}


def test_with_a_sidr_retriever() -> None:
    sidr = SiDRRetriever.from_texts(["copper wire", "river stone", "copper pipe"], ids=["w", "r", "p"], k=3)
    hybrid = HybridRetriever(retrievers=[sidr, listed("r")], k=2)
    assert {d.id for d in hybrid.invoke("copper wire")} == {"w", "r"}
    by_words = SiDRRetriever(engine=sidr.engine, first_stage="lexical", k=3)
    assert HybridRetriever(retrievers=[sidr, by_words]).invoke("copper wire")[0].id == "w"


def test_an_id_in_metadata() -> None:
    other = ListRetriever(documents=[Document("t", metadata={"doc_id": "b"}), Document("t", metadata={"doc_id": 7})])
    hybrid = HybridRetriever(retrievers=[listed("a", "b"), other], id_key="doc_id")
    assert [d.id for d in hybrid.invoke("anything")] == ["b", "a", None]
    with pytest.raises(InvalidInputError, match=r"retrievers\[1\] found a document without an id"):
        HybridRetriever(retrievers=[listed("a"), other]).invoke("anything")


def test_id_key_of_a_sidr_retriever_lets_others_join_by_metadata() -> None:
    sidr = SiDRRetriever.from_texts(["copper"], [{"doc_id": "own"}], ids=["x"], id_key="doc_id")
    assert sidr.invoke("copper")[0].metadata["doc_id"] == "x"
    assert sidr.get_by_ids(["x"])[0].metadata == {"doc_id": "own"}


async def test_async_asks_all_at_once_and_gives_the_same(
    monkeypatch: pytest.MonkeyPatch, never_blocked: Callable[..., Any]
) -> None:
    parts = [SiDRRetriever.from_texts(["copper wire", "copper pipe"], ids=["w", "p"]) for _ in range(3)]
    hybrid = HybridRetriever(retrievers=parts)
    expected = hybrid.invoke("copper")
    all_here = threading.Barrier(3)
    for part in parts:
        encode = part.engine.encoder.encode_queries

        def together(texts: Sequence[str], encode: Any = encode, **options: Any) -> Any:
            if options.get("representation", "theta") != "bot":
                all_here.wait(60)  # broken, and an error, when one is asked after another
                time.sleep(0.3)
            return encode(texts, **options)

        monkeypatch.setattr(part.engine.encoder, "encode_queries", together)
    for found in await never_blocked(lambda: hybrid.ainvoke("copper")):
        assert found == expected


def test_the_parts_are_child_runs_and_their_errors_arrive() -> None:
    started: list[bool] = []

    class Watcher(BaseCallbackHandler):
        def on_retriever_start(self, *args: Any, parent_run_id: Any = None, **kwargs: Any) -> None:
            started.append(parent_run_id is not None)

    hybrid = HybridRetriever(retrievers=[listed("a"), listed("b")])
    hybrid.invoke("anything", {"callbacks": [Watcher()]})
    assert started == [False, True, True]
    broken = HybridRetriever(retrievers=[listed("a"), ListRetriever(documents=[], fail=True)])
    with pytest.raises(RuntimeError, match="is down"):
        broken.invoke("anything")


def test_parts_with_configurable_fields() -> None:
    sidr = SiDRRetriever.from_texts(["copper a", "copper b"], ids=["a", "b"])
    fields = sidr.configurable_fields(k=ConfigurableField(id="k")).with_config(configurable={"k": 1})
    assert len(HybridRetriever(retrievers=[fields]).invoke("copper")) == 1


def test_nothing_found() -> None:
    assert HybridRetriever(retrievers=[listed(), SiDRRetriever.from_texts([])]).invoke("anything") == []


def test_pickled(tmp_path: Path) -> None:
    sidr = SiDRRetriever.from_texts(["copper"], ids=["c"], path=tmp_path / "s")
    hybrid = HybridRetriever(retrievers=[sidr], k=3, weights=[2])
    copy = pickle.loads(pickle.dumps(hybrid))
    assert (copy.k, copy.invoke("copper")) == (3, hybrid.invoke("copper"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"retrievers": []}, "retrievers is empty"),
        ({"weights": [1, 2]}, "weights has 2 items for 1"),
        ({"weights": [-1]}, r"weights\[0\]=-1"),
        ({"constant": -1.0}, "constant=-1"),
        ({"k": -1}, "k=-1"),
        ({"top": 3}, "top"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        HybridRetriever(**{"retrievers": [listed("a")], **arguments})
