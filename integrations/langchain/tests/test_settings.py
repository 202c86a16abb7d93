"""What a retriever is set to: in the constructor, in one call, as configurable fields, and kept beside its store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import ConfigurableField
from langchain_sidr import SiDRRetriever

from sidr_rag import IndexFormatError, InvalidInputError, InvalidTypeError

TEXTS = [f"copper {i} river {i % 3} stone " * (1 + i % 4) for i in range(20)]
QUESTIONS = [f"copper {i} stone" for i in range(4)]
MINE: dict[str, Any] = {
    "k": 7,
    "rerank": 3,
    "filter": {("a", "b"): {"gte": 2}, "even": {"in": [True]}},
    "min_score": 0.01,
    "reranker": "theta",
    "first_stage": "lexical",
    "query_repr": "lex",
    "max_active_dims": 30,
    "weight_floor": 0.1,
    "score_key": "s",
    "id_key": "i",
    "title_key": None,
}


def made(path: Path | None, **options: Any) -> SiDRRetriever:
    metadatas = [{"even": i % 2 == 0, "a": {"b": i}} for i in range(20)]
    return SiDRRetriever.from_texts(TEXTS, metadatas, path=path, **options)


def set_to(retriever: SiDRRetriever) -> dict[str, Any]:
    return {name: getattr(retriever, name) for name in MINE}


class TestKept:
    def test_every_setting_comes_back(self, tmp_path: Path) -> None:
        first = made(tmp_path / "s", **MINE)
        first.save(tmp_path / "copy")
        expected = first.batch(QUESTIONS)
        first.close()
        for folder in ("s", "copy"):
            again = SiDRRetriever.open(tmp_path / folder)
            assert again.batch(QUESTIONS) == expected
            kept = set_to(again)
            # A filter comes back in JSON's spelling, and means the same.
            assert kept.pop("filter") == {
                "and": [{"path": ["a", "b"], "gte": 2}, {"even": {"in": [True]}}],
            }
            assert kept == {name: value for name, value in MINE.items() if name != "filter"}
            again.close()

    def test_search_is_kept_too(self, tmp_path: Path) -> None:
        made(tmp_path / "s", search="full").close()
        assert SiDRRetriever.open(tmp_path / "s").search == "full"

    def test_what_is_given_goes_before_what_is_kept(self, tmp_path: Path) -> None:
        made(tmp_path / "s", **MINE).close()
        again = SiDRRetriever.open(tmp_path / "s", k=2, rerank=0, filter=None)
        assert (again.k, again.rerank, again.filter, again.min_score) == (2, 0, None, 0.01)
        again.close()
        assert SiDRRetriever.open(tmp_path / "s").k == 7

    def test_changed_settings_are_kept_by_save(self, tmp_path: Path) -> None:
        first = made(tmp_path / "s")
        first.k = 9
        first.save(tmp_path / "s")
        first.close()
        assert SiDRRetriever.open(tmp_path / "s", read_only=True).k == 9

    def test_made_by_open_or_by_a_folder(self, tmp_path: Path) -> None:
        SiDRRetriever.open(tmp_path / "new", create=True, k=1).close()
        again = SiDRRetriever.open(tmp_path / "new", create=True)
        assert again.k == 1
        again.close()
        (tmp_path / "files").mkdir()
        SiDRRetriever.from_folder(tmp_path / "files", path=tmp_path / "s", k=2).close()
        assert SiDRRetriever.open(tmp_path / "s").k == 2

    def test_a_store_without_settings_has_the_defaults(self, tmp_path: Path) -> None:
        made(tmp_path / "s", **MINE).close()
        (tmp_path / "s" / "retriever.json").unlink()
        again = SiDRRetriever.open(tmp_path / "s")
        assert (again.k, again.filter, again.score_key) == (4, None, "sidr_score")
        assert not (tmp_path / "s" / "retriever.json").exists()

    def test_an_object_as_reranker_is_not_kept(self, tmp_path: Path) -> None:
        class Backwards:
            def rerank(self, query: str, passages: Any, beta_scores: Any) -> Any:
                return -beta_scores

        made(tmp_path / "s", reranker=Backwards(), rerank=5).close()
        again = SiDRRetriever.open(tmp_path / "s")
        assert (again.reranker, again.rerank) == (None, 5)

    def test_unknown_and_missing_settings(self, tmp_path: Path) -> None:
        made(tmp_path / "s", **MINE).close()
        file = tmp_path / "s" / "retriever.json"
        kept = json.loads(file.read_text("utf-8"))
        del kept["rerank"]
        file.write_text(json.dumps({**kept, "shoe_size": 44, "engine": "x", "num_threads": 3}), encoding="utf-8")
        again = SiDRRetriever.open(tmp_path / "s")
        assert (again.k, again.rerank) == (7, 0)

    @pytest.mark.parametrize(
        ("name", "value"), [("k", "7"), ("k", -1), ("filter", {"a": {"near": 1}}), ("search", "dense"), ("id_key", 3)]
    )
    def test_a_setting_that_cannot_be_used_is_an_error_that_names_the_file(
        self, tmp_path: Path, name: str, value: Any
    ) -> None:
        made(tmp_path / "s").close()
        file = tmp_path / "s" / "retriever.json"
        file.write_text(json.dumps({name: value}), encoding="utf-8")
        with pytest.raises(IndexFormatError, match=r"(?s)retriever\.json.*"):
            SiDRRetriever.open(tmp_path / "s")
        file.unlink()
        SiDRRetriever.open(tmp_path / "s").close()


class TestGiven:
    def test_configurable_fields(self) -> None:
        retriever = made(None).configurable_fields(
            k=ConfigurableField(id="k"), filter=ConfigurableField(id="only"), rerank=ConfigurableField(id="m")
        )
        assert len(retriever.invoke("copper")) == 4
        chosen = retriever.with_config(configurable={"k": 2, "only": {"even": False}, "m": 5})
        found = chosen.invoke("copper")
        assert [d.metadata["even"] for d in found] == [False, False]
        with pytest.raises((InvalidInputError, InvalidTypeError, ValueError), match="k='two'"):
            retriever.with_config(configurable={"k": "two"}).invoke("copper")

    async def test_configurable_fields_async_and_alternatives(self) -> None:
        engine = made(None).engine
        retriever = SiDRRetriever(engine=engine, k=2).configurable_alternatives(
            ConfigurableField(id="stage"), default_key="beta", lexical=SiDRRetriever(engine=engine, k=1)
        )
        assert len(await retriever.ainvoke("copper")) == 2
        assert len(await retriever.ainvoke("copper", {"configurable": {"stage": "lexical"}})) == 1

    def test_tracing_parameters(self) -> None:
        retriever = made(None)
        assert retriever._get_ls_params() == {
            "ls_retriever_name": "sidr",
            "ls_vector_store_provider": "sidr-rag",
            "ls_embedding_provider": "sidr-rag",
            "ls_embedding_model": retriever.engine.info()["model"],
        }

    async def test_makers_have_async_twins(self, tmp_path: Path) -> None:
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "a.txt").write_text("Copper conducts.", encoding="utf-8")
        texts = await SiDRRetriever.afrom_texts(["copper"], [{"n": 1}], ids=["a"], k=1)
        documents = await SiDRRetriever.afrom_documents([Document("copper", id="a", metadata={"n": 1})], k=1)
        assert await texts.ainvoke("copper") == await documents.ainvoke("copper")
        folder = await SiDRRetriever.afrom_folder(tmp_path / "files", path=tmp_path / "s", k=1)
        assert [d.metadata["kind"] for d in await folder.ainvoke("copper")] == ["txt"]
        folder.close()
        assert len(await (await SiDRRetriever.aopen(tmp_path / "s")).ainvoke("copper")) == 1
