from __future__ import annotations

import pytest
from langchain_core.documents import Document
from langchain_sidr.documents import document_columns, to_document

from sidr_rag import InvalidTypeError, Passage


def test_columns_keep_ids_texts_and_metadata() -> None:
    documents = [Document("a text", id="a", metadata={"n": 1}), Document("b text")]
    columns = {name: list(values) for name, values in document_columns(documents).items()}
    assert columns == {"texts": ["a text", "b text"], "ids": ["a", None], "metadatas": [{"n": 1}, {}]}


def test_given_ids_replace_the_documents_own() -> None:
    assert list(document_columns([Document("t", id="old")], ["new"])["ids"]) == ["new"]


@pytest.mark.parametrize("given", ["a text", Document("a text"), 3, None])
def test_what_is_no_list_of_documents_is_named(given: object) -> None:
    with pytest.raises(InvalidTypeError, match=f"documents is a {type(given).__name__}"):
        document_columns(given)  # type: ignore[arg-type]


def test_an_item_that_is_no_document_is_named_by_position() -> None:
    columns = document_columns([Document("fine"), "a secret text"])  # type: ignore[list-item]
    with pytest.raises(InvalidTypeError, match=r"documents\[1\] is a str") as caught:
        list(columns["texts"])
    assert "secret" not in str(caught.value)


def test_a_document_equals_a_validated_one() -> None:
    passage = Passage("x", "text", None, {"a": [1]})
    assert to_document(passage) == Document(id="x", page_content="text", metadata={"a": [1]})


def test_score_replaces_and_title_does_not() -> None:
    passage = Passage("x", "text", "Heading", {"title": "own", "score": 0.1})
    document = to_document(passage, title_key="title", score_key="score", score=2.0)
    assert document.metadata == {"title": "own", "score": 2.0}
    assert passage.metadata == {"title": "own", "score": 0.1}
    assert to_document(Passage("x", "text", "Heading"), title_key="title").metadata == {"title": "Heading"}


def test_a_lone_surrogate_comes_back() -> None:
    assert to_document(Passage("x", "a\ud800b")).page_content == "a\ud800b"
