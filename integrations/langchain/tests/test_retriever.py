from __future__ import annotations

import datetime
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import langchain_sidr
import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langchain_sidr import SiDRRetriever
from pydantic import ValidationError

from sidr_rag import IndexFormatError, InvalidInputError, InvalidTypeError, Passage, SiDR

WORDS = ["anchor", "copper", "falcon", "alpha", "beta", "river", "stone", "winter", "bridge", "garden"]


def lexical(texts: Sequence[str], **options: Any) -> SiDRRetriever:
    """A retriever whose query vector is 1 on the question's own tokens, so that every score can be told."""
    return SiDRRetriever.from_texts(texts, weighting="binary", first_stage="lexical", **options)


def found_ids(retriever: SiDRRetriever, query: str, **options: Any) -> list[str | None]:
    return [document.id for document in retriever.invoke(query, **options)]


class BackwardsReranker:
    """Prefers the last candidate, and writes where it should not."""

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: np.ndarray) -> np.ndarray:
        for passage in passages:
            passage.metadata["relevance"] = 1.0  # type: ignore[index]
        return np.arange(len(passages), dtype=np.float64)


def test_public_names() -> None:
    assert langchain_sidr.__all__ == [
        "HybridRetriever",
        "SiDRMilvusEmbeddings",
        "SiDRRetriever",
        "SiDRSparseEmbeddings",
        "SiDRVectorStore",
        "__version__",
        "pack_documents",
    ]
    assert issubclass(SiDRRetriever, BaseRetriever)


def test_five_lines_answer_a_question() -> None:
    texts = ["The heart pumps blood through the body.", "Copper conducts electricity.", "Falcons hunt by day."]
    retriever = SiDRRetriever.from_texts(texts, k=1)
    (document,) = retriever.invoke("Which organ moves blood?")
    assert document.page_content == texts[0]
    assert document.metadata["sidr_score"] > 0
    assert document.id == retriever.engine.ids()[0]


def test_results_are_the_engines() -> None:
    texts = [f"{first} {second}" for first in WORDS for second in WORDS]
    retriever = SiDRRetriever.from_texts(texts, ids=[str(i) for i in range(100)], k=7, rerank=20)
    expected = retriever.engine.search("a bridge over the river", k=7, rerank=20)
    documents = retriever.invoke("a bridge over the river")
    assert [(d.id, d.metadata["sidr_score"], d.page_content) for d in documents] == [
        (r.passage.id, r.score, r.passage.text) for r in expected
    ]


class TestOptions:
    def test_per_call_overrides_hold_for_that_call_only(self) -> None:
        retriever = lexical(["copper one", "copper two", "copper three"], k=2, ids=["a", "b", "c"])
        assert found_ids(retriever, "copper", k=1) == ["a"]
        assert found_ids(retriever, "copper", k=2, filter={"x": 1}) == []
        assert found_ids(retriever, "copper one two", k=3, min_score=2.0) == ["a", "b"]
        assert found_ids(retriever, "copper") == ["a", "b"]
        assert retriever.k == 2
        assert retriever.filter is None

    def test_every_search_option_reaches_the_engine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reranker = BackwardsReranker()
        options: dict[str, Any] = {
            "k": 3,
            "rerank": 9,
            "search": "beta",
            "filter": {"n": {"gt": 1}},
            "min_score": 0.5,
            "reranker": reranker,
            "first_stage": "lexical",
            "query_repr": "lex",
            "max_active_dims": 7,
            "weight_floor": 0.1,
        }
        seen: list[dict[str, Any]] = []
        monkeypatch.setattr(SiDR, "search", lambda self, query, **arguments: seen.append(arguments) or [])
        SiDRRetriever.from_texts([], **options).invoke("a")
        SiDRRetriever.from_texts([]).invoke("a", **options)
        assert seen == [options, options]

    def test_a_wrong_attribute_is_an_error_and_stores_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(ValidationError, match="search"):
            SiDRRetriever.from_texts(["a"], path=tmp_path / "store", search="gamma")
        assert not (tmp_path / "store").exists()

    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            ("search", "gamma", "search='gamma' is not known; choose one of 'beta'"),
            ("query_repr", "gamma", "query_repr='gamma' is not known"),
            ("first_stage", "gamma", "first_stage='gamma' is not known"),
            ("reranker", "gamma", "reranker='gamma' is not known"),
            ("rerank", -1, "rerank=-1 is too small"),
            ("max_active_dims", 0, "max_active_dims=0 is too small"),
            ("min_score", "much", "min_score='much' must be a number"),
            ("filter", {"owner": {"near": "secret"}}, "unknown operator 'near'"),
            ("filter", "owner", "filter must be a mapping"),
        ],
    )
    def test_wrong_values_are_named_wherever_given(self, option: str, value: Any, message: str) -> None:
        retriever = SiDRRetriever.from_texts(["a"])
        for ask in (
            lambda: SiDRRetriever(engine=retriever.engine, **{option: value}),
            lambda: retriever.invoke("a", **{option: value}),
        ):
            with pytest.raises((ValueError, TypeError), match=re.escape(message)) as caught:
                ask()
            assert "secret" not in str(caught.value)

    def test_counts_of_other_integer_types(self) -> None:
        retriever = lexical(["copper one", "copper two"], k=np.int64(1))
        assert type(retriever.k) is int
        assert len(retriever.invoke("copper")) == 1
        assert len(retriever.invoke("copper", k=np.int64(2))) == 2

    def test_unknown_options_are_named(self) -> None:
        with pytest.raises(InvalidTypeError, match="unknown options 'topk'"):
            SiDRRetriever.from_texts(["a"], topk=3)
        retriever = SiDRRetriever.from_texts(["a"])
        with pytest.raises(InvalidTypeError, match="unknown search options 'topk'; known are k, rerank"):
            retriever.invoke("a", topk=3)
        with pytest.raises(ValidationError, match="topk"):
            SiDRRetriever(engine=retriever.engine, topk=3)

    def test_a_query_that_is_no_string_is_named(self) -> None:
        with pytest.raises(InvalidTypeError, match="query is a list; give a string, or use batch"):
            SiDRRetriever.from_texts(["a"]).invoke(["a", "b"])  # type: ignore[arg-type]

    def test_configurable_fields_share_the_engine(self) -> None:
        retriever = lexical(["copper one", "copper two"], k=1)
        configurable = retriever.configurable_fields(k=ConfigurableField(id="k"))
        assert len(configurable.invoke("copper")) == 1
        assert len(configurable.with_config(configurable={"k": 2}).invoke("copper")) == 2

    def test_attributes_can_be_changed_and_are_checked(self) -> None:
        retriever = lexical(["copper one", "copper two"], k=1)
        retriever.k = 2
        assert len(retriever.invoke("copper")) == 2
        with pytest.raises(ValidationError, match="k=-1"):
            retriever.k = -1

    def test_score_and_title_keys(self) -> None:
        retriever = lexical(["born in Ulm"], titles=["Einstein"], metadatas=[{"sidr_score": "own"}])
        assert retriever.invoke("einstein")[0].metadata == {"sidr_score": 1.0, "title": "Einstein"}
        bare = SiDRRetriever(engine=retriever.engine, first_stage="lexical", score_key=None, title_key=None)
        assert bare.invoke("einstein")[0].metadata == {"sidr_score": "own"}

    def test_reranking_scores_replace_first_stage_scores(self) -> None:
        retriever = lexical(["copper a", "copper b", "copper c"], ids=["a", "b", "c"], reranker=BackwardsReranker())
        documents = retriever.invoke("copper", rerank=2, k=3)
        assert [(d.id, d.metadata["sidr_score"]) for d in documents] == [("b", 1.0), ("a", 0.0), ("c", 1.0)]

    def test_full_and_alpha_search(self) -> None:
        retriever = SiDRRetriever.from_texts(["blood and heart", "copper wire"], ids=["heart", "wire"], k=1)
        for search in ("full", "alpha"):
            assert found_ids(retriever, "copper", search=search) == ["wire"]

    def test_filter_is_applied_before_the_cut(self) -> None:
        # R26
        texts = ["copper harbor ledger"] * 300 + ["copper"] * 7
        owners = [{"owner": "other"}] * 300 + [{"owner": "amber"}] * 7
        ids = [f"f{i}" for i in range(307)]
        retriever = SiDRRetriever.from_texts(texts, owners, ids=ids, filter={"owner": "amber"}, k=5)
        query = "copper harbor ledger"
        assert found_ids(retriever, query) == ids[300:305]
        assert found_ids(retriever, query, k=10) == ids[300:]
        assert found_ids(retriever, query, filter={"owner": "nobody"}) == []
        reranked = found_ids(retriever, query, rerank=20)
        assert len(reranked) == 5
        assert set(reranked) <= set(ids[300:])


class TestEdges:
    def test_k_beyond_and_at_zero(self) -> None:
        # R01
        retriever = lexical(["copper a", "copper b", "copper c"])
        assert [len(retriever.invoke("copper", k=k)) for k in (20, 3, 1, 0)] == [3, 3, 1, 0]
        empty = lexical([])
        assert [empty.invoke("copper", k=k) for k in (20, 3, 1, 0)] == [[], [], [], []]

    @pytest.mark.parametrize("k", [-1, "5", 2.5, True, None])
    def test_a_wrong_k_is_named(self, k: Any) -> None:
        # R01
        retriever = lexical(["copper"])
        for ask in (
            lambda: retriever.invoke("copper", k=k),
            lambda: SiDRRetriever.from_texts(["copper"], k=k),
            lambda: SiDRRetriever(engine=retriever.engine, k=k),
        ):
            with pytest.raises((ValueError, TypeError), match=f"k={k!r}"):
                ask()

    @pytest.mark.filterwarnings("error")
    def test_empty_texts_and_empty_stores(self) -> None:
        # R02
        blank = SiDRRetriever.from_texts(["", "   ", "\u200b"], ids=["a", "b", "c"])
        assert blank.invoke("invoice") == []
        assert len(blank.engine) == 3
        assert [d.page_content for d in blank.get_by_ids(["a", "b", "c"])] == ["", "   ", "\u200b"]
        assert blank.delete(["b"]) == {"num_deleted": 1}
        empty = SiDRRetriever.from_texts([], rerank=5)
        assert empty.invoke("invoice") == []
        empty.add_texts(["an invoice of May"], ids=["new"])
        assert found_ids(empty, "invoice") == ["new"]

    def test_an_empty_document_shifts_nothing(self, tmp_path: Path) -> None:
        # R04
        texts = ["foo", "", "quick god", "quick fox", "   ", "dog"]
        retriever = lexical(texts, ids=[f"d{i}" for i in range(6)])

        def check(r: SiDRRetriever) -> None:
            quick = r.invoke("quick")
            assert [(d.id, d.page_content) for d in quick] == [("d2", "quick god"), ("d3", "quick fox")]
            assert quick[0].metadata["sidr_score"] == quick[1].metadata["sidr_score"]
            assert [(d.id, d.page_content) for d in r.invoke("dog")] == [("d5", "dog")]

        check(retriever)
        retriever.save(tmp_path / "store")
        reopened = SiDRRetriever.open(tmp_path / "store", first_stage="lexical")
        check(reopened)
        reopened.delete(["d1"])
        check(reopened)
        reopened.close()

    def test_empty_query(self) -> None:
        assert SiDRRetriever.from_texts(["copper"]).invoke("") == []

    def test_metadata_that_is_not_json_names_the_id(self) -> None:
        retriever = SiDRRetriever.from_texts(["kept"])
        document = Document("text", id="x7", metadata={"when": datetime.date(2024, 1, 1)})
        with pytest.raises(InvalidTypeError, match="'x7' holds a date"):
            retriever.add_documents([Document("fine"), document])
        assert len(retriever.engine) == 1

    def test_lone_surrogates_do_not_break_a_search(self) -> None:
        retriever = lexical(["copper \ud800"])
        assert retriever.invoke("copper \udfff")[0].page_content == "copper \ud800"

    def test_nested_metadata_comes_back_equal(self, tmp_path: Path) -> None:
        # R53
        metadata = {
            "links": [{"text": "Git", "url": "#git"}],
            "langs": ["eng"],
            "page": 3,
            "score": 0.1,
            "ok": True,
            "none": None,
            "big": 2**70,
            "key with space": "",
        }
        retriever = lexical(["copper"], metadatas=[metadata], score_key=None, path=tmp_path / "store")
        assert retriever.invoke("copper")[0].metadata == metadata
        retriever.close()
        reopened = SiDRRetriever.open(tmp_path / "store", score_key=None)
        assert reopened.invoke("copper")[0].metadata == metadata


class TestIdentity:
    def test_ids_are_kept_and_made(self, tmp_path: Path) -> None:
        # R28
        documents = [
            Document("copper one", id="x1", metadata={"id": "other"}),
            Document("copper two", id="x2"),
            Document("copper three"),
        ]
        retriever = SiDRRetriever.from_documents(documents, path=tmp_path / "store")
        first = {d.page_content: d for d in retriever.invoke("copper")}
        assert first["copper one"].id == "x1"
        assert first["copper one"].metadata["id"] == "other"
        assert first["copper two"].id == "x2"
        made = first["copper three"].id
        assert made
        assert set(found_ids(retriever, "copper three")) == {"x1", "x2", made}
        assert retriever.get_by_ids(["x2", "absent", "x1"]) == [
            Document("copper two", id="x2"),
            Document("copper one", id="x1", metadata={"id": "other"}),
        ]
        assert documents[2].id is None
        retriever.close()
        reopened = SiDRRetriever.open(tmp_path / "store")
        assert set(found_ids(reopened, "copper")) == {"x1", "x2", made}

    def test_results_and_inputs_are_not_live(self) -> None:
        # R29
        metadata: dict[str, Any] = {"tags": ["a"]}
        retriever = lexical([], reranker=BackwardsReranker(), score_key=None)
        retriever.add_documents([Document("copper", metadata=metadata)])
        metadata["tags"].append("b")
        found = retriever.invoke("copper")[0]
        found.metadata["tags"].append("c")
        found.metadata["x"] = 1
        retriever.invoke("copper", rerank=5)
        assert retriever.invoke("copper")[0].metadata == {"tags": ["a"]}

    def test_equal_ids_replace(self) -> None:
        # R52
        together = lexical(["apple", "pear", "plum"], ids=["x", "y", "x"])
        later = lexical(["apple", "pear"], ids=["x", "y"])
        later.add_texts(["plum"], ids=["x"])
        for retriever in (together, later):
            assert found_ids(retriever, "apple") == []
            assert found_ids(retriever, "plum") == ["x"]
            assert len(retriever.engine) == 2

    @pytest.mark.parametrize("odd", ["a\\b", "a/b", "", "é", "i" * 300])
    def test_odd_ids(self, odd: str) -> None:
        # R52
        retriever = lexical([])
        assert retriever.add_documents([Document("apple", id=odd)]) == [odd]
        assert found_ids(retriever, "apple") == [odd]

    def test_equal_texts_are_different_documents(self) -> None:
        # R05
        text = "Refund window is 30 days."
        documents = [
            Document(text, id="a", metadata={"source": "eu.md"}),
            Document("Shipping takes 5 days.", id="c"),
            Document(text, id="b", metadata={"source": "us.md"}),
        ]
        retriever = SiDRRetriever.from_documents(documents, k=2)
        assert [(d.id, d.metadata["source"]) for d in retriever.invoke("refund window")] == [
            ("a", "eu.md"),
            ("b", "us.md"),
        ]
        retriever.delete(["a"])
        assert found_ids(retriever, "refund window")[0] == "b"


class TestChanging:
    def test_added_and_deleted_while_it_lives(self, tmp_path: Path) -> None:
        # R07
        retriever = lexical([f"item {word}" for word in WORDS], ids=[str(i) for i in range(10)], path=tmp_path / "s")
        assert retriever.delete([str(i) for i in (0, 4, 9)]) == {"num_deleted": 3}
        assert retriever.delete(["absent"]) == {"num_deleted": 0}

        def check(r: SiDRRetriever) -> None:
            for i, word in enumerate(WORDS):
                expected = [] if i in (0, 4, 9) else [(str(i), f"item {word}")]
                assert [(d.id, d.page_content) for d in r.invoke(word)] == expected

        check(retriever)
        assert len(retriever.engine) == 7
        assert retriever.add_texts(["item tower", "item candle"], [{"n": 1}, None], ids=["t", "c"]) == ["t", "c"]
        check(retriever)
        assert retriever.invoke("tower")[0].metadata == {"n": 1, "sidr_score": 1.0}
        retriever.close()
        reopened = SiDRRetriever.open(tmp_path / "s", first_stage="lexical")
        check(reopened)
        assert len(reopened.engine) == 9

    def test_a_call_that_fails_adds_nothing(self) -> None:
        retriever = lexical(["apple"], ids=["a"])
        with pytest.raises(InvalidInputError, match="ids has 1 items"):
            retriever.add_texts(["pear", "plum"], ids=["p"])
        with pytest.raises(InvalidTypeError, match=r"documents\[1\] is a str"):
            retriever.add_documents([Document("pear"), "plum"])  # type: ignore[list-item]
        assert retriever.engine.ids() == ["a"]

    def test_given_ids_go_before_the_documents_own(self) -> None:
        retriever = SiDRRetriever.from_documents([Document("apple", id="old")], ids=["new"])
        assert retriever.engine.ids() == ["new"]
        assert retriever.add_documents([Document("pear", id="old")], ids=["other"]) == ["other"]

    def test_documents_from_a_generator(self) -> None:
        retriever = SiDRRetriever.from_documents(Document(word) for word in WORDS)
        assert len(retriever.engine) == 10


class TestKeeping:
    def test_an_existing_store_is_not_replaced_unasked(self, tmp_path: Path) -> None:
        lexical(["alpha"], path=tmp_path / "s").close()
        with pytest.raises(IndexFormatError, match="overwrite=True"):
            lexical(["beta"], path=tmp_path / "s")
        retriever = lexical(["beta"], path=tmp_path / "s", overwrite=True)
        assert retriever.invoke("alpha") == []
        assert len(retriever.invoke("beta")) == 1

    def test_open_creates_only_when_asked(self, tmp_path: Path) -> None:
        with pytest.raises(IndexFormatError):
            SiDRRetriever.open(tmp_path / "none")
        retriever = SiDRRetriever.open(tmp_path / "new", create=True, k=1)
        retriever.add_texts(["alpha"])
        assert len(retriever.invoke("alpha")) == 1

    def test_pickle_where_the_engine_does(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidTypeError, match="in memory cannot be pickled"):
            pickle.dumps(lexical(["alpha"]))
        retriever = lexical(["alpha one", "alpha two"], path=tmp_path / "s", k=1, filter={"x": {"exists": False}})
        copy = pickle.loads(pickle.dumps(retriever))
        assert (copy.k, copy.filter, copy.first_stage) == (1, {"x": {"exists": False}}, "lexical")
        assert copy.invoke("alpha") == retriever.invoke("alpha")

    def test_repr_holds_no_documents(self) -> None:
        assert "alpha" not in repr(lexical(["alpha"]))


class TestChains:
    def test_in_a_chain_with_a_chat_model(self) -> None:
        retriever = SiDRRetriever.from_texts(["Copper conducts electricity.", "Falcons hunt by day."], k=1)
        seen: list[str] = []

        def note(prompt: Any) -> Any:
            seen.append(prompt.to_string())
            return prompt

        chain = (
            {
                "context": retriever | (lambda documents: "\n".join(d.page_content for d in documents)),
                "question": RunnablePassthrough(),
            }
            | ChatPromptTemplate.from_template("Context: {context}\nQuestion: {question}")
            | RunnableLambda(note)
            | FakeListChatModel(responses=["Copper."])
            | StrOutputParser()
        )
        assert chain.invoke("Which metal conducts?") == "Copper."
        assert seen == ["Human: Context: Copper conducts electricity.\nQuestion: Which metal conducts?"]

    def test_batch_and_bind(self) -> None:
        retriever = lexical(["apple a", "apple b", "pear"], ids=["a", "b", "p"])
        assert [[d.id for d in found] for found in retriever.batch(["apple", "pear", "plum"])] == [
            ["a", "b"],
            ["p"],
            [],
        ]
        assert [[d.id for d in found] for found in retriever.bind(k=1).batch(["apple", "pear"])] == [["a"], ["p"]]
