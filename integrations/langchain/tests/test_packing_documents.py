from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_sidr import SiDRRetriever, pack_documents

from sidr_rag import InvalidTypeError


def test_numbered_with_title_and_source() -> None:
    documents = [
        Document("Falcons hunt.", id="a", metadata={"title": "Birds", "source": "birds.txt"}),
        Document("Copper conducts."),
        Document("Rivers run."),
    ]
    packed = pack_documents(documents, max_tokens=50)
    assert packed.text == "[1] Birds (birds.txt)\nFalcons hunt.\n\n[2]\nCopper conducts.\n\n[3]\nRivers run."
    assert [p.id for p in packed.passages] == ["a", "#1", "#2"]
    assert packed.n_tokens <= 50
    assert pack_documents(documents, max_tokens=50, title_key=None).text.startswith("[1] (birds.txt)")
    assert documents[0].metadata == {"title": "Birds", "source": "birds.txt"}


def test_in_a_chain_with_a_budget(tmp_path: Path) -> None:
    (tmp_path / "metals.md").write_text("# Metals\n\n" + "Copper conducts electricity. " * 80, encoding="utf-8")
    retriever = SiDRRetriever.from_folder(tmp_path, max_tokens=60, k=20)
    seen: list[str] = []
    chain = (
        {
            "context": retriever | (lambda documents: pack_documents(documents, max_tokens=150).text),
            "question": RunnablePassthrough(),
        }
        | ChatPromptTemplate.from_template("{context}\n\n{question}")
        | RunnableLambda(lambda prompt: seen.append(prompt.to_string()) or prompt)
        | FakeListChatModel(responses=["Copper [1]."])
        | StrOutputParser()
    )
    assert chain.invoke("Which metal conducts?") == "Copper [1]."
    assert f"[1] Metals ({tmp_path}/metals.md)" in seen[0]
    assert "[2]" in seen[0]
    assert "[4]" not in seen[0]


def test_what_is_no_document_is_named() -> None:
    with pytest.raises(InvalidTypeError, match=r"documents\[1\] is a str"):
        pack_documents([Document("fine"), "a text"], max_tokens=50)  # type: ignore[list-item]
