from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.example_selectors import SemanticSimilarityExampleSelector
from langchain_sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import IndexFormatError, InvalidInputError, InvalidTypeError, SiDR

TEXTS = ["river stone", "copper is a metal", "copper wire copper", "copper wire", "falcon"]
IDS = ["r", "m", "c", "w", "f"]
OWN: dict[str, Any] = {"first_stage": "lexical"}


@pytest.fixture
def store() -> SiDRVectorStore:
    return SiDRVectorStore.from_texts(
        TEXTS, metadatas=[{"n": i, "even": i % 2 == 0} for i in range(5)], ids=IDS, weighting="binary"
    )


def ids_of(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


class TestSearching:
    def test_k_documents_as_long_as_there_are_so_many(self, store: SiDRVectorStore) -> None:
        assert ids_of(store.similarity_search("copper wire", k=5, **OWN)) == ["c", "w", "m", "r", "f"]
        assert ids_of(store.similarity_search("copper wire", k=3, **OWN)) == ["c", "w", "m"]
        assert len(store.similarity_search("copper", k=99)) == 5
        assert len(store.similarity_search("copper")) == 4
        assert store.similarity_search("copper", k=0) == []

    def test_filter_holds_for_what_is_filled_in(self, store: SiDRVectorStore) -> None:
        found = store.similarity_search("copper", k=5, filter={"even": True}, **OWN)
        assert ids_of(found) == ["c", "r", "f"]
        assert all(document.metadata["even"] for document in found)

    def test_scores(self, store: SiDRVectorStore) -> None:
        found = store.similarity_search_with_score("copper wire", k=4, **OWN)
        assert [(document.id, score) for document, score in found] == [("c", 2.0), ("w", 2.0), ("m", 1.0), ("r", 0.0)]
        assert found[0][0].metadata == {"n": 2, "even": True}

    def test_the_first_documents_are_the_retrievers(self, store: SiDRVectorStore) -> None:
        retriever = SiDRRetriever(engine=store.engine, score_key=None, k=10)
        for options in ({}, {"rerank": 3}, {"search": "full"}, {"search": "alpha"}):
            matching = retriever.invoke("Which metal is a wire?", **options)
            assert store.similarity_search("Which metal is a wire?", k=5, **options)[: len(matching)] == matching

    def test_score_and_id_in_metadata_on_request(self, store: SiDRVectorStore) -> None:
        told = SiDRVectorStore(store.engine, score_key="score", id_key="doc_id")
        (document,) = told.similarity_search("copper wire", k=1, **OWN)
        assert document.metadata == {"n": 2, "even": True, "score": 2.0, "doc_id": "c"}
        assert told.get_by_ids(["c"])[0].metadata == {"n": 2, "even": True}

    def test_generic_search(self, store: SiDRVectorStore) -> None:
        assert ids_of(store.search("copper wire", "similarity", k=1, **OWN)) == ["c"]
        assert ids_of(store.search("copper wire", "mmr", k=1, **OWN)) == ["c"]
        found = store.search("copper wire", "similarity_score_threshold", k=5, score_threshold=0.9, **OWN)
        assert ids_of(found) == ["c", "w"]

    @pytest.mark.parametrize(
        ("call", "named"),
        [
            (lambda s: s.similarity_search("copper", k="5"), "k='5'"),
            (lambda s: s.similarity_search("copper", k=-1), "k=-1"),
            (lambda s: s.similarity_search(["copper"]), "query is a list"),
            (lambda s: s.similarity_search("copper", top=3), "'top'"),
            (lambda s: s.similarity_search("copper", filter={"n": {"near": 3}}), "near"),
            (lambda s: s.max_marginal_relevance_search("copper", lambda_mult=2), "relevance_weight=2"),
            (lambda s: s.max_marginal_relevance_search("copper", rerank=3), "rerank=3"),
            (lambda s: s.add_texts(["x"], id=["y"]), "'id'"),
            (lambda s: s.delete("r"), "ids is a str"),
            (lambda s: SiDRVectorStore("a folder"), "engine is a str"),  # type: ignore[arg-type]
        ],
    )
    def test_bad_arguments_are_named(self, store: SiDRVectorStore, call: Callable[[Any], Any], named: str) -> None:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=named):
            call(store)


class TestRelevance:
    def test_share_of_the_questions_weight(self, store: SiDRVectorStore) -> None:
        found = store.similarity_search_with_relevance_scores("copper wire", k=5, **OWN)
        assert [(d.id, s) for d, s in found] == [("c", 1.0), ("w", 1.0), ("m", 0.5), ("r", 0.0), ("f", 0.0)]

    @pytest.mark.filterwarnings("error")
    def test_within_0_and_1_in_the_order_of_the_search(self, store: SiDRVectorStore) -> None:
        found = store.similarity_search_with_relevance_scores("Which metal is a wire?", k=5)
        assert ids_of([d for d, _ in found]) == ids_of(store.similarity_search("Which metal is a wire?", k=5))
        assert all(0 <= share <= 1 for _, share in found)
        assert found[0][1] > 0

    def test_no_exact_bound_is_a_clear_error(self, store: SiDRVectorStore) -> None:
        levelled = SiDRVectorStore.from_texts(TEXTS)
        with pytest.raises(InvalidInputError, match="weighting='binary'"):
            levelled.similarity_search_with_relevance_scores("copper")
        with pytest.raises(InvalidInputError, match="rerank"):
            store.similarity_search_with_relevance_scores("copper", rerank=3)

    def test_threshold_retriever(self, store: SiDRVectorStore) -> None:
        retriever = store.as_retriever(
            search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.4, **OWN}
        )
        assert ids_of(retriever.invoke("copper wire")) == ["c", "w", "m"]


class TestDiversity:
    def test_copies_come_late(self, store: SiDRVectorStore) -> None:
        assert ids_of(store.max_marginal_relevance_search("copper wire", k=3, lambda_mult=1.0, **OWN)) == [
            "c",
            "w",
            "m",
        ]
        assert ids_of(store.max_marginal_relevance_search("copper wire", k=2, lambda_mult=0.3, **OWN)) == ["c", "r"]
        assert ids_of(store.max_marginal_relevance_search("copper wire", k=9, fetch_k=2, **OWN)) == ["c", "w"]

    def test_as_retriever(self, store: SiDRVectorStore) -> None:
        retriever = store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "filter": {"even": False}, **OWN})
        assert ids_of(retriever.invoke("copper wire")) == ["w", "m"]
        assert retriever._get_ls_params()["ls_vector_store_provider"] == "SiDRVectorStore"


class TestChanging:
    def test_there_is_no_embedding_object(self, store: SiDRVectorStore) -> None:
        assert store.embeddings is None
        embedding = DeterministicFakeEmbedding(size=4)
        with pytest.raises(InvalidTypeError, match="DeterministicFakeEmbedding"):
            SiDRVectorStore.from_texts(["copper"], embedding)
        with pytest.raises(InvalidTypeError, match="DeterministicFakeEmbedding"):
            SiDRVectorStore.from_documents([Document("copper")], embedding)

    def test_documents_keep_their_ids_and_are_not_changed(self) -> None:
        documents = [Document("copper", id="x", metadata={"tags": ["a"]}), Document("copper wire")]
        store = SiDRVectorStore.from_documents(documents)
        assert documents == [Document("copper", id="x", metadata={"tags": ["a"]}), Document("copper wire")]
        found = store.similarity_search("copper", k=2)
        assert "x" in ids_of(found)
        assert None not in ids_of(found)
        found[0].metadata["more"] = 1
        assert "more" not in store.similarity_search("copper", k=2)[0].metadata

    def test_delete_some_and_all(self, store: SiDRVectorStore) -> None:
        assert store.delete(["r", "absent"])
        assert store.engine.ids() == ["m", "c", "w", "f"]
        assert store.delete()
        assert len(store.engine) == 0
        assert store.similarity_search("copper") == []

    def test_kept_and_opened(self, tmp_path: Path) -> None:
        store = SiDRVectorStore.from_texts(["copper"], ids=["a"], path=tmp_path / "s")
        store.add_texts(["copper wire"], [{"n": 1}], ids=["b"], titles=["Metals"])
        store.save(tmp_path / "copy")
        store.close()
        with pytest.raises(IndexFormatError, match="overwrite=True"):
            SiDRVectorStore.from_texts(["beta"], path=tmp_path / "s")
        for folder in ("s", "copy"):
            opened = SiDRVectorStore.open(tmp_path / folder, read_only=True)
            assert [d.metadata for d in opened.get_by_ids(["b", "absent"])] == [{"n": 1, "title": "Metals"}]
            copy = pickle.loads(pickle.dumps(opened))
            assert copy.similarity_search("wire", k=2) == opened.similarity_search("wire", k=2)

    def test_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("Copper conducts.", encoding="utf-8")
        store = SiDRVectorStore.from_texts([])
        assert len(store.add_files(tmp_path).written) == 1
        (tmp_path / "a.txt").unlink()
        assert len(store.sync_folder(tmp_path).removed) == 1
        assert len(store.engine) == 0

    def test_an_example_selector_works_on_it(self) -> None:
        store = SiDRVectorStore.from_texts([])
        selector = SemanticSimilarityExampleSelector(vectorstore=store, k=1)
        selector.add_example({"question": "Which metal conducts?", "answer": "copper"})
        selector.add_example({"question": "Which bird hunts?", "answer": "falcon"})
        assert selector.select_examples({"question": "a bird that hunts"})[0]["answer"] == "falcon"


class TestAsync:
    async def test_twins_give_the_same(self, store: SiDRVectorStore) -> None:
        assert await store.asimilarity_search("copper wire", k=5) == store.similarity_search("copper wire", k=5)
        assert await store.asimilarity_search_with_score("copper", k=2) == store.similarity_search_with_score(
            "copper", k=2
        )
        assert await store.asimilarity_search_with_relevance_scores(
            "copper", k=2
        ) == store.similarity_search_with_relevance_scores("copper", k=2)
        assert await store.amax_marginal_relevance_search("copper", k=2) == store.max_marginal_relevance_search(
            "copper", k=2
        )

    async def test_making_and_changing(self) -> None:
        store = await SiDRVectorStore.afrom_texts(["copper"], ids=["a"])
        assert await store.aadd_texts(["river"], ids=["b"]) == ["b"]
        assert await store.aadd_documents([Document("falcon", id="c")]) == ["c"]
        assert ids_of(await store.aget_by_ids(["c", "a"])) == ["c", "a"]
        assert await store.adelete(["a"])
        assert store.engine.ids() == ["b", "c"]
        other = await SiDRVectorStore.afrom_documents([Document("copper", id="x")])
        assert other.engine.ids() == ["x"]

    async def test_searches_never_block_the_loop(
        self, slow_encoder: Callable[..., None], never_blocked: Callable[..., Any]
    ) -> None:
        store = SiDRVectorStore(SiDR.from_texts(TEXTS, weighting="binary"))
        slow_encoder(store.engine, ["copper"], 0.3)
        for found in await never_blocked(
            lambda: asyncio.gather(
                store.asimilarity_search("copper"),
                store.asimilarity_search_with_relevance_scores("copper"),
                store.amax_marginal_relevance_search("copper"),
                store.as_retriever().ainvoke("copper"),
            )
        ):
            assert all(found)
