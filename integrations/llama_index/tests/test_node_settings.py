"""A retriever's options, kept beside its store."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.retrievers.sidr import SiDRRetriever

from sidr_rag import IndexFormatError
from sidr_rag.retriever_settings import load_settings, save_settings

FILTERS = MetadataFilters(
    filters=[
        MetadataFilters(
            filters=[MetadataFilter(key="page", value=3, operator=FilterOperator.GT)], condition=FilterCondition.NOT
        ),
        MetadataFilter(key="owner", value=["amber", "ruby"], operator=FilterOperator.IN),
    ]
)
MINE: dict[str, Any] = {
    "similarity_top_k": 7,
    "filters": FILTERS,
    "rerank": 3,
    "min_score": 0.01,
    "reranker": "theta",
    "first_stage": "lexical",
    "query_repr": "lex",
    "max_active_dims": 30,
    "weight_floor": 0.1,
}
QUESTIONS = [f"copper {i} stone" for i in range(4)]


class Own:
    def rerank(self, query: str, passages: Any, beta_scores: Any) -> Any:
        return beta_scores


def made(path: Path, **options: Any) -> SiDRRetriever:
    nodes: list[BaseNode] = [
        TextNode(text=f"copper {i} river {i % 3} stone", id_=f"n{i}", metadata={"page": i, "owner": "amber"})
        for i in range(20)
    ]
    return SiDRRetriever.from_defaults(nodes, path=path, **options)


def set_to(retriever: SiDRRetriever) -> dict[str, Any]:
    return {name: getattr(retriever, name) for name in MINE}


def test_every_setting_comes_back(tmp_path: Path) -> None:
    first = made(tmp_path / "s", **MINE)
    first.persist(tmp_path / "copy")
    expected = [first.retrieve(question) for question in QUESTIONS]
    assert any(expected)
    first.close()
    for folder in ("s", "copy"):
        with contextlib.closing(SiDRRetriever.from_persist_dir(tmp_path / folder)) as again:
            assert set_to(again) == MINE
            assert [again.retrieve(question) for question in QUESTIONS] == expected


def test_what_is_given_goes_before_what_is_kept(tmp_path: Path) -> None:
    made(tmp_path / "s", **MINE).close()
    with contextlib.closing(SiDRRetriever.from_persist_dir(tmp_path / "s", similarity_top_k=2, filters=None)) as again:
        assert set_to(again) == {**MINE, "similarity_top_k": 2, "filters": None}


def test_defaults_come_back_as_defaults_and_changes_are_kept_by_persist(tmp_path: Path) -> None:
    retriever = made(tmp_path / "s")
    before = set_to(retriever)
    with contextlib.closing(retriever):
        retriever.search = "full"
        retriever.persist(tmp_path / "s")
    with contextlib.closing(SiDRRetriever.from_persist_dir(tmp_path / "s")) as again:
        assert set_to(again) == before
        assert again.search == "full"


def test_objects_are_not_kept(tmp_path: Path) -> None:
    made(tmp_path / "s", reranker=Own(), rerank=5).close()
    with contextlib.closing(SiDRRetriever.from_persist_dir(tmp_path / "s")) as again:
        assert (again.reranker, again.rerank) == (None, 5)


def test_another_adapters_settings_are_read_and_ours_are_its(tmp_path: Path) -> None:
    made(tmp_path / "s", **MINE).close()
    kept = load_settings(tmp_path / "s")
    assert kept["k"] == 7
    assert kept["filter"] == {
        "and": [
            {"not": {"or": [{"path": ["page"], "gt": 3}]}},
            {"path": ["owner"], "in": ["amber", "ruby"]},
        ]
    }
    save_settings(tmp_path / "s", {"k": 2, "filter": {"page": {"lt": 9}}, "score_key": "s", "rerank": 4})
    with contextlib.closing(SiDRRetriever.from_persist_dir(tmp_path / "s")) as again:
        assert (again.similarity_top_k, again.filters, again.rerank) == (2, {"page": {"lt": 9}}, 4)
        assert again.retrieve("copper 3 stone")[0].node.node_id == "n3"


@pytest.mark.parametrize(
    ("faulty", "named"),
    [
        ({"k": -1}, "similarity_top_k=-1"),
        ({"rerank": "3"}, "rerank='3'"),
        ({"filter": {"page": {"above": 3}}}, "unknown operator 'above'"),
        ({"filters": {"filters": 3}}, "filters"),
    ],
)
def test_settings_that_cannot_be_used_name_the_file(tmp_path: Path, faulty: dict[str, Any], named: str) -> None:
    made(tmp_path / "s").close()
    (tmp_path / "s" / "retriever.json").write_text(json.dumps(faulty), encoding="utf-8")
    with pytest.raises(IndexFormatError, match=rf"retriever\.json: (.|\n)*{named}"):
        SiDRRetriever.from_persist_dir(tmp_path / "s")


def test_a_new_folder_on_request(tmp_path: Path) -> None:
    with contextlib.closing(SiDRRetriever.from_persist_dir(tmp_path / "s", create=True)) as retriever:
        retriever.insert_nodes([TextNode(text="copper", id_="n")])
    with contextlib.closing(SiDRRetriever.from_persist_dir(tmp_path / "s", read_only=True)) as again:
        assert len(again.retrieve("copper")) == 1
