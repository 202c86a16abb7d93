"""Situations from public reports through the retriever; the tests bear the reports' numbers.

The bundled model embeds the questions, unless a test needs to tell every score: then the question's own words are the
query vector (`lexical`).
"""
# ruff: noqa: N802

from __future__ import annotations

import asyncio
import errno
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_sidr import SiDRRetriever

from sidr_rag import (
    IndexFormatError,
    InvalidInputError,
    Passage,
    SidrError,
    SparseVectors,
    StoreLockedError,
)
from sidr_rag.encoder.resolve import DEFAULT_FOLDER
from sidr_rag.search.weighting import Weighting
from sidr_rag.text import split_spans

ROOT = Path(__file__).resolve().parents[3]
REPORT = ROOT.parent / "shared" / "cases" / "public-reports.md"
WORDS = ["anchor", "copper", "falcon", "alpha", "beta", "river", "stone", "winter", "bridge", "garden"]
# What only the LlamaIndex adapter has: nodes with a metadata mode, and the deletion of a source document.
TESTED_ELSEWHERE = (
    ("R55", "integrations/llama_index/tests/test_sidr_retriever.py"),
    ("R56", "integrations/llama_index/tests/test_sidr_retriever.py"),
)

Make = Callable[..., SiDRRetriever]
LEXICAL: dict[str, Any] = {"weighting": "binary", "first_stage": "lexical"}


@pytest.fixture
def make() -> Iterator[Make]:
    """A function (texts, **options) -> retriever with the bundled model; what it made is closed at the end."""
    made: list[SiDRRetriever] = []

    def build(texts: Any = (), **options: Any) -> SiDRRetriever:
        made.append(SiDRRetriever.from_texts(texts, **{"k": 10, **options}))
        return made[-1]

    yield build
    for retriever in made:
        retriever.close()


@pytest.fixture
def reopen() -> Iterator[Make]:
    """The same for a folder: (path, **options) -> retriever."""
    made: list[SiDRRetriever] = []

    def build(path: Path, **options: Any) -> SiDRRetriever:
        made.append(SiDRRetriever.open(path, **{"k": 10, **options}))
        return made[-1]

    yield build
    for retriever in made:
        retriever.close()


@pytest.fixture(scope="session")
def inputs() -> Path:
    """The folder of the cases' input files."""
    folder = REPORT.parent / "inputs"
    if not folder.is_dir():
        pytest.skip("the cases' inputs are not on this machine")
    return folder


@pytest.fixture(scope="session")
def big(inputs: Path) -> Any:
    """The module that makes the large inputs."""
    spec = importlib.util.spec_from_file_location("make_big", inputs / "make_big.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command(source: str, *arguments: Any) -> list[str]:
    return [sys.executable, "-c", source, *map(str, arguments)]


def child(source: str, *arguments: Any, **environment: str) -> str:
    """What another Python prints."""
    done = subprocess.run(
        command(source, *arguments),
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def start_child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function (source, *arguments) -> Popen of another Python, ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(source: str, *arguments: Any) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(command(source, *arguments), stdout=subprocess.PIPE, encoding="utf-8"))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ids(documents: Sequence[Document]) -> list[str | None]:
    return [document.id for document in documents]


def found(retriever: SiDRRetriever, query: str, **options: Any) -> list[str | None]:
    return ids(retriever.invoke(query, **options))


def scores(documents: Sequence[Document]) -> list[float]:
    return [document.metadata["sidr_score"] for document in documents]


def test_every_case_has_its_test(inputs: Path) -> None:
    reported = re.findall(r"^### (R\d+) ", REPORT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    here = {match[1] for name in globals() if (match := re.match(r"test_(R\d+)_", name))}
    assert here.isdisjoint(case for case, _ in TESTED_ELSEWHERE)
    assert here | {case for case, _ in TESTED_ELSEWHERE} == set(reported)
    for case, file in TESTED_ELSEWHERE:
        assert re.search(rf"\b{case}\b", (ROOT / file).read_text(encoding="utf-8")), (case, file)


# Empty, tiny and missing input


def test_R01_k_larger_than_the_index(make: Make) -> None:
    for retriever, n in ((make(["copper one", "copper two", "copper three"]), 3), (make(), 0)):
        for options in ({"rerank": 5}, {"first_stage": "lexical"}):
            got = [len(retriever.invoke("copper", k=k, **options)) for k in (20, 3, 1, 0)]
            assert got == [min(k, n) for k in (20, 3, 1, 0)]
        for k in (-1, "5", 2.5, True):
            with pytest.raises((ValueError, TypeError), match=f"k={k!r}"):
                retriever.invoke("copper", k=k)


@pytest.mark.filterwarnings("error")
def test_R02_only_empty_texts_and_an_empty_store(make: Make) -> None:
    blank, empty = make(["", "   ", "\u200b"], ids=["a", "b", "c"]), make()
    for retriever in (blank, empty):
        for options in ({}, {"rerank": 5}, {"search": "full"}, {"search": "alpha"}):
            assert retriever.invoke("invoice", **options) == retriever.invoke("", **options) == []
        retriever.add_documents([Document("the invoice", id="new")])
        assert found(retriever, "invoice", rerank=5) == ["new"]
    assert len(blank.engine) == 4
    assert [d.page_content for d in blank.get_by_ids(["c", "a"])] == ["\u200b", ""]
    assert blank.delete(["b"]) == {"num_deleted": 1}


def test_R04_an_empty_document_in_the_middle(make: Make, reopen: Make, tmp_path: Path) -> None:
    texts = ["foo", "", "quick god", "quick fox", "   ", "dog"]
    retriever = make(texts, ids=[f"d{i}" for i in range(6)])
    retriever.save(tmp_path / "s")

    def check(r: SiDRRetriever) -> None:
        own = r.invoke("quick", first_stage="lexical")
        assert [(d.id, d.page_content) for d in own] == [("d2", "quick god"), ("d3", "quick fox")]
        assert scores(own)[0] == scores(own)[1]
        for query, named in (("quick", {"d2", "d3"}), ("dog", {"d5"})):
            for options in ({}, {"rerank": 6}, {"search": "full"}):
                documents = r.invoke(query, **options)
                assert named <= set(ids(documents))
                assert all(d.page_content == texts[int(str(d.id)[1:])] for d in documents)

    check(retriever)
    copy = reopen(tmp_path / "s")
    check(copy)
    copy.delete(["d1"])
    check(copy)


def test_R25_a_word_in_half_of_or_all_documents_still_scores(make: Make) -> None:
    for options in ({}, LEXICAL, {"first_stage": "lexical"}):
        retriever = make(["Hello there good man!", "It is quite windy in London"], ids=["w1", "w2"], **options)
        documents = retriever.invoke("windy London")
        assert documents[0].id == "w2"
        assert min(scores(documents)) > 0
    pink = make(["pink pink pink pink", "blue pink", "pink"], ids=["p1", "p2", "p3"], **LEXICAL)
    assert found(pink, "pink") == ["p1", "p2", "p3"]
    assert scores(pink.invoke("pink")) == [1.0, 1.0, 1.0]
    pink.add_texts(["green grass", "yellow sun"])
    assert scores(pink.invoke("pink")) == [1.0, 1.0, 1.0]


def test_R61_an_empty_store_is_still_the_one_to_search(make: Make) -> None:
    first, empty = make(["copper"]), make()
    on_empty = SiDRRetriever(engine=empty.engine)
    for options in ({}, {"rerank": 3}, {"first_stage": "lexical"}):
        assert on_empty.invoke("copper", **options) == empty.invoke("copper", **options) == []
        assert len(first.invoke("copper", **options)) == 1


# What the text may contain


def test_R11_words_of_more_than_100_characters(make: Make, inputs: Path, big: Any, tmp_path: Path) -> None:
    lines = [line for line in (inputs / "digests.txt").read_text(encoding="utf-8").splitlines() if line]
    big.base64_line(tmp_path)
    picture = (tmp_path / "base64.md").read_text(encoding="utf-8")
    names = ["h1", "h2", "g1", "g2", "g3", "picture", "hundred", "more"]
    retriever = make([*lines, picture, "a" * 100, "a" * 101], ids=names)
    for options in ({}, {"first_stage": "lexical"}):
        best = found(retriever, "checksum of release 4.2", **options)
        assert best[0] == "h1"
        assert "h2" in best[:3]
        assert found(retriever, "fuse box layout", **options)[0] == "picture"
        # The design cuts long words into pieces instead of dropping them, so a digest finds its own document first.
        for name, line in zip(names, lines, strict=False):
            assert found(retriever, line.split()[-1], **options)[0] == name
        assert "hundred" in found(retriever, "a" * 100, **options)
        assert found(retriever, "\u6545" * 200, **options) == []


def test_R13_special_tokens_typed_in_a_text(make: Make) -> None:
    texts = [
        "The [MASK] token hides one word; [SEP] splits two segments.",
        "The token hides one word and splits two segments.",
    ]
    retriever = make(texts, ids=["s1", "s2"])
    for typed in ("[MASK]", "[SEP]"):
        assert found(retriever, typed, first_stage="lexical") == ["s1"]
        for options in ({}, {"rerank": 2}):
            assert found(retriever, typed, **options)[0] == "s1"


def test_R14_lone_surrogates(make: Make, reopen: Make, tmp_path: Path) -> None:
    texts = ["fine text", "bad \ud800 text", chr(0xD83D) + chr(0xDC4D) + " ok"]
    names = ["a", "id\ud800", chr(0xD83D) + chr(0xDC4D)]
    metadata = {"half\ud800": ["\udc00", chr(0xD83D) + chr(0xDC4D)]}
    retriever = make(texts, metadatas=[{}, metadata, {}], ids=names, path=tmp_path / "s", score_key=None)
    retriever.save(tmp_path / "copy")

    def check(r: SiDRRetriever) -> None:
        assert r.engine.ids() == names
        assert [d.page_content for d in r.get_by_ids(names)] == texts
        for options in ({}, {"rerank": 3}):
            (bad, *_) = r.invoke("bad", **options)
            assert (bad.id, bad.page_content, bad.metadata) == (names[1], texts[1], metadata)
            assert found(r, "\ud800 ok", **options)[0] == names[2]
        assert found(r, "text", filter={"half\ud800": {"contains": "\udc00"}}) == [names[1]]

    check(retriever)
    retriever.close()
    check(reopen(tmp_path / "s", score_key=None))
    check(reopen(tmp_path / "copy", score_key=None))


def test_R16_nul_and_vertical_tab(make: Make, reopen: Make, inputs: Path, tmp_path: Path) -> None:
    v1 = (inputs / "slides_vt.txt").read_text(encoding="utf-8").split("\n")[0]
    texts = [v1, "Quarterly targets for sales", "".join(c + "\0" for c in "invoice")]
    metadata = {"producer": "Scan Driver 1.3\0"}
    documents = [Document(text, id=f"v{i}") for i, text in enumerate(texts, start=1)]
    documents[0].metadata = dict(metadata)
    retriever = make(path=tmp_path / "s", score_key=None)
    assert retriever.add_documents(documents) == ["v1", "v2", "v3"]

    def check(r: SiDRRetriever) -> None:
        for query, name in (("goals", "v1"), ("hire welders", "v1"), ("invoice", "v3")):
            assert found(r, query)[0] == name
            assert found(r, query, first_stage="lexical") == [name]
        assert r.get_by_ids(["v1", "v2", "v3"]) == documents
        assert found(r, "goals", filter=metadata) == ["v1"]

    check(retriever)
    retriever.close()
    check(reopen(tmp_path / "s", score_key=None))


def test_R17_ligatures_and_full_width_characters(make: Make, inputs: Path) -> None:
    line = (inputs / "ligatures.txt").read_text(encoding="utf-8").splitlines()[0]
    for text in (line, unicodedata.normalize("NFKC", line)):
        retriever = make([text, "The closed shop at noon hours"], ids=["f1", "f2"])
        for query in ("financial", "efficiently", "1234", "office", "ﬁnancial", "eﬃciently", "１２３４", "oﬃce"):
            first = retriever.invoke(query)[0]
            assert (first.id, first.page_content) == ("f1", text)
            assert found(retriever, query, first_stage="lexical")[0] == "f1"


def test_R19_characters_outside_the_vocabulary(make: Make, inputs: Path) -> None:
    lines = (inputs / "cjk.txt").read_text(encoding="utf-8").splitlines()
    retriever = make(lines, ids=["c1", "c2", "c3", "c4"])
    own = make(lines, ids=["c1", "c2", "c3", "c4"], **LEXICAL).invoke("明月")
    assert ids(own) == ["c1", "c3"]
    assert scores(own)[0] == scores(own)[1]
    assert set(found(retriever, "明月", k=2)) == {"c1", "c3"}
    for options in ({}, {"rerank": 4}, {"search": "full"}, {"search": "alpha"}, {"first_stage": "lexical"}):
        assert retriever.invoke("故乡", **options) == []


def test_R20_composed_and_decomposed_spelling(make: Make, inputs: Path) -> None:
    lines = (inputs / "nfc_nfd.txt").read_text(encoding="utf-8").splitlines()
    retriever = make(lines, ids=["nfc", "nfd"], weighting="binary")
    for word in ("バス", "한국어"):
        for options in ({}, {"first_stage": "lexical"}):
            answers = [retriever.invoke(unicodedata.normalize(form, word), **options) for form in ("NFC", "NFD")]
            assert answers[0] == answers[1]
            assert set(ids(answers[0])) == {"nfc", "nfd"}
        own = scores(retriever.invoke(word, first_stage="lexical"))
        assert own[0] == own[1]


def test_R22_codes_versions_and_identifiers(make: Make, inputs: Path) -> None:
    lines = (inputs / "identifiers.txt").read_text(encoding="utf-8").splitlines()
    retriever = make(lines)
    for query, line in (
        ("A002", lines[1]),
        ("CVE-2024-1234", lines[2]),
        ("adr 0003", lines[3]),
        ("getHTTPResponseCode", lines[5]),
        ("4021", lines[5]),
    ):
        assert retriever.invoke(query, first_stage="lexical")[0].page_content == line
        for spelling in (query, query.lower(), query.upper()):
            assert line in [d.page_content for d in retriever.invoke(spelling, k=3)]


def test_R23_different_texts_with_the_same_bag(make: Make, reopen: Make, inputs: Path, tmp_path: Path) -> None:
    rows = (inputs / "same_bag.csv").read_text(encoding="utf-8").splitlines()[1:]
    names, texts = zip(*(row.split(",") for row in rows), strict=True)
    make(texts, ids=names, path=tmp_path / "s").close()
    for threads in (1, 8):
        retriever = reopen(tmp_path / "s", num_threads=threads)
        for _ in range(3):
            assert found(retriever, "due 2023-02-01", k=3) == ["t1", "t2", "t3"]
            assert found(retriever, "due 2023-02-01", k=1) == ["t1"]
        batch = retriever.bind(k=2).batch(["due 2023-02-01", "host 192.168.1.10"] * 4)
        assert [ids(documents) for documents in batch] == [["t1", "t2"], ["t4", "t5"]] * 4
        retriever.close()


def test_R44_a_million_characters_without_a_break(make: Make, big: Any, tmp_path: Path) -> None:
    big.runs(tmp_path)
    names = ["run_a", "run_emoji", "run_space"]
    texts = [(tmp_path / f"{name}.txt").read_text(encoding="utf-8") for name in names]
    start = time.thread_time()
    retriever = make(texts, ids=names)
    assert time.thread_time() - start < 15
    for word in ("kangaroo", "walrus"):
        documents = retriever.invoke(word, first_stage="lexical")
        assert {d.id: d.page_content for d in documents} == dict(zip(names, texts, strict=True))
        assert set(names) == set(found(retriever, word))


def test_R47_other_models_markers(make: Make) -> None:
    texts = ["The <|endoftext|> marker ends a document", "The marker starts a chapter"]
    names = ["e1", "e2", *(f"n{i}" for i in range(10))]
    retriever = make([*texts, *(f"normal document {i}" for i in range(10))], ids=names)
    assert len(retriever.engine) == 12
    assert found(retriever, "<|endoftext|>")[0] == "e1"
    assert found(retriever, "<|endoftext|>", first_stage="lexical") == ["e1"]


def test_nasty_strings(make: Make, reopen: Make, inputs: Path, tmp_path: Path) -> None:
    texts = json.loads((inputs / "nasty_strings.json").read_text(encoding="utf-8"))["texts"]
    names = [f"{i}:{text}" for i, text in enumerate(texts)]
    retriever = make(texts, ids=names, metadatas=[{text: [text]} for text in texts], first_stage="lexical", k=60)
    retriever.save(tmp_path / "s")
    for r in (retriever, reopen(tmp_path / "s", first_stage="lexical", k=60)):
        assert [(d.page_content, d.metadata) for d in r.get_by_ids(names)] == [(t, {t: [t]}) for t in texts]
        for name, text in zip(names, texts, strict=True):
            documents = r.invoke(text)
            assert name in ids(documents) or (documents == [] and not len(r.engine.bags([text]).dims))


# Length limits and chunking


def test_R40_the_tail_of_a_long_document(make: Make, big: Any) -> None:
    long = [big.long_doc_needle(600), big.long_doc_needle(5000)]
    words = ["zeppelin", "maintenance", "schedule", "river"]
    short = [f"{words[i % 4]} stone ledger note {i}" for i in range(50)]
    names = [*(f"s{i}" for i in range(50)), "long600", "long5000"]
    query = "zeppelin maintenance schedule"
    retriever = make([*short, *long], ids=names, weighting="binary")
    for options in ({}, {"first_stage": "lexical"}):
        assert found(retriever, query, k=2, **options) == ["long600", "long5000"]
    assert found(make(long[:1], ids=["long600"]), query, rerank=1) == ["long600"]
    # The design's default weighting counts a document's length: the longer one needs the splitter to come first.
    ranked = found(make([*short, *long], ids=names), query, k=60)
    assert ranked[0] == "long600"
    assert "long5000" in ranked


def test_R41_queries_longer_than_the_encoder_s_window(make: Make, big: Any, tmp_path: Path) -> None:
    big.long_queries(tmp_path)
    case = json.loads((tmp_path / "long_queries.json").read_text(encoding="utf-8"))
    retriever = make([d["text"] for d in case["docs"]], ids=[d["id"] for d in case["docs"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for query in case["queries"]:
            for options in ({}, {"first_stage": "lexical"}):
                assert found(retriever, query["query"], **options)[0] == query["expected"]


def test_R46_offsets_of_repeated_chunks(make: Make, reopen: Make, tmp_path: Path) -> None:
    text = "This is a test, please stay calm. " * 6
    spans = split_spans(text, make().engine.encoder.tokenizer, max_tokens=10, overlap=3)
    chunks = [Document(text[a:b], metadata={"start_index": a}) for a, b in spans]
    (tmp_path / "notes.txt").write_text(text, encoding="utf-8")
    split = SiDRRetriever.from_folder(tmp_path / "notes.txt", max_tokens=10, overlap=3, path=tmp_path / "split")
    split.close()
    retriever = make(path=tmp_path / "s")
    retriever.add_documents(chunks)
    retriever.close()
    for path, key in (("s", "start_index"), ("split", "start")):
        documents = reopen(tmp_path / path).invoke("please stay calm", k=50)
        assert sorted(d.metadata[key] for d in documents) == [a for a, _ in spans]
        for document in documents:
            start = document.metadata[key]
            assert text[start : start + len(document.page_content)] == document.page_content


# Identity, deletion, update


def test_R05_the_same_text_in_two_documents(make: Make) -> None:
    text = "Refund window is 30 days."
    metadatas = [{"source": "eu.md"}, {}, {"source": "us.md"}]
    retriever = make([text, "Shipping takes 5 days.", text], metadatas=metadatas, ids=["a", "c", "b"], k=2)
    for options in ({}, {"rerank": 3}, {"search": "full"}, {"search": "alpha"}, {"first_stage": "lexical"}):
        documents = retriever.invoke("refund window", **options)
        assert [(d.id, d.metadata["source"]) for d in documents] == [("a", "eu.md"), ("b", "us.md")]
    retriever.delete(["a"])
    assert found(retriever, "refund window", k=1) == ["b"]
    assert found(retriever, "refund window", first_stage="lexical") == ["b"]


def test_R07_after_a_delete_results_belong_to_the_right_texts(make: Make, reopen: Make, tmp_path: Path) -> None:
    retriever = make([f"item {word}" for word in WORDS], ids=[str(i) for i in range(10)], path=tmp_path / "s")
    words = list(WORDS)

    def check(r: SiDRRetriever) -> None:
        for i, word in enumerate(words):
            deleted = i in (0, 4, 9)
            assert found(r, word, first_stage="lexical") == ([] if deleted else [str(i)])
            documents = r.invoke(word)
            assert all(d.page_content == f"item {words[int(str(d.id))]}" for d in documents)
            assert deleted or documents[0].id == str(i)

    assert retriever.delete(["0", "4", "9"]) == {"num_deleted": 3}
    assert retriever.delete(["0", "absent"]) == {"num_deleted": 0}
    check(retriever)
    assert len(retriever.engine) == 7
    words += ["walrus", "kangaroo"]
    retriever.add_texts(["item walrus", "item kangaroo"], ids=["10", "11"])
    check(retriever)
    retriever.close()
    reopened = reopen(tmp_path / "s")
    check(reopened)
    assert len(reopened.engine) == 9


R08_READING = """
import sys
from langchain_sidr import SiDRRetriever
retriever = SiDRRetriever.open(sys.argv[1], k=1)
print(len(retriever.engine), *(retriever.invoke(query)[0].id for query in ("zebra", "filler 499")))
"""


def test_R08_what_was_added_after_the_build_is_there_after_reload(make: Make, tmp_path: Path) -> None:
    retriever = make([f"filler {i}" for i in range(500)], ids=[f"f{i}" for i in range(500)])
    retriever.save(tmp_path / "s")
    retriever.add_texts(["sfeqsbsr zebra"], ids=["new"])
    assert found(retriever, "zebra", k=1) == ["new"]
    retriever.save(tmp_path / "s")
    assert child(R08_READING, tmp_path / "s") == "501 new f499\n"


def test_R10_adding_one_or_a_few_short_documents(make: Make) -> None:
    retriever = make()
    for texts, names in ((["one"], "a"), (["two"], "b"), (["three", "river"], "cd")):
        retriever.add_documents([Document(text, id=name) for text, name in zip(texts, names, strict=True)])
        for text, name in zip(texts, names, strict=True):
            assert found(retriever, text)[0] == name
            assert found(retriever, text, first_stage="lexical") == [name]


def test_R28_results_carry_the_id(make: Make, reopen: Make, tmp_path: Path) -> None:
    texts = ["copper one", "copper two", "copper three"]
    documents = [Document(text, id=name) for text, name in zip(texts, ["x1", "x2", None], strict=True)]
    documents[0].metadata = {"id": "other"}
    retriever = make(path=tmp_path / "s")
    names = retriever.add_documents(documents)
    assert names[:2] == ["x1", "x2"]
    expected = dict(zip(names, texts, strict=True))

    def check(r: SiDRRetriever) -> None:
        answers = [r.invoke("copper"), asyncio.run(r.ainvoke("copper")), *r.batch(["copper"]), r.get_by_ids(names)]
        for answer in answers:
            assert {str(d.id): d.page_content for d in answer} == expected
            assert {d.metadata.get("id") for d in answer if d.id == "x1"} == {"other"}
            assert all("id" not in d.metadata for d in answer if d.id != "x1")

    check(retriever)
    retriever.close()
    check(reopen(tmp_path / "s"))


class Scoring:
    """A reranker that writes where it should not."""

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: np.ndarray) -> np.ndarray:
        for passage in passages:
            passage.metadata["relevance"] = 1.0  # type: ignore[index]
        return np.arange(len(passages), dtype=np.float64)


def test_R29_results_and_inputs_are_no_live_references(make: Make) -> None:
    document = Document("copper", id="x", metadata={"tags": ["a"]})
    retriever = make(reranker=Scoring())
    retriever.add_documents([document])
    document.metadata["tags"].append("b")
    for options in ({}, {"rerank": 1}, {"search": "full"}):
        (result,) = retriever.invoke("copper", **options)
        assert {key: value for key, value in result.metadata.items() if key != "sidr_score"} == {"tags": ["a"]}
        result.metadata["tags"].append("c")
        result.metadata["x"] = 1
        (kept,) = retriever.get_by_ids(["x"])
        assert kept.metadata == {"tags": ["a"]}
        kept.metadata.clear()


def test_R52_duplicate_ids(make: Make) -> None:
    together = make(["apple", "pear", "plum"], ids=["x", "y", "x"])
    later = make(["apple", "pear"], ids=["x", "y"])
    later.add_documents([Document("plum", id="x")])
    for retriever in (together, later):
        assert found(retriever, "apple", first_stage="lexical") == []
        assert all(d.page_content != "apple" for d in retriever.invoke("apple", rerank=3))
        assert found(retriever, "plum", k=1) == ["x"]
        assert len(retriever.engine) == 2
        with pytest.raises(InvalidInputError, match="'x'"):
            retriever.engine.add(["fig", "date"], ids=["new", "x"], on_conflict="error")
        assert sorted(retriever.engine.ids()) == ["x", "y"]
    odd = ["a\\b", "a/b", "", "é", "i" * 300]
    assert together.add_texts([f"word {i}" for i in range(5)], ids=odd) == odd
    assert ids(together.get_by_ids(odd)) == odd
    assert together.delete(odd) == {"num_deleted": 5}


# Filters


def test_R26_a_filter_is_applied_before_the_cut_at_k(make: Make, big: Any, tmp_path: Path) -> None:
    big.filter_corpus(tmp_path)
    lines = (tmp_path / "filter_corpus.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    retriever = SiDRRetriever.from_documents(
        Document(row["text"], id=row["id"], metadata=row["metadata"]) for row in rows
    )
    query, amber = "copper harbor ledger", {"owner": "amber"}
    every = [f"f{i}" for i in range(4993, 5000)]
    for options in ({}, {"first_stage": "lexical"}):
        assert found(retriever, query, k=5, filter=amber, **options) == every[:5]
        assert found(retriever, query, k=10, filter=amber, **options) == every
        assert found(retriever, query, k=10, filter={"owner": "nobody"}, **options) == []
        assert found(retriever, query, k=5, filter=amber, rerank=20, **options) == every[:5]


# Saving and loading


R31_FAILING = """
import errno, resource, signal, sys
from langchain_sidr import SiDRRetriever
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
texts = [f"copper {i}" for i in range(100)]
retriever = SiDRRetriever.from_texts(texts, ids=[str(i) for i in range(100)])
retriever.save(sys.argv[1])
retriever.add_texts(f"copper {i} more words {i * 7}" for i in range(20000))
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    retriever.save(sys.argv[1])
except OSError as e:
    print(type(e).__name__, e.errno)
print(len(retriever.invoke("copper", k=30000, first_stage="lexical")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE")
def test_R31_a_failing_save_leaves_the_old_state(reopen: Make, tmp_path: Path) -> None:
    assert child(R31_FAILING, tmp_path / "s").split() == ["StorageError", str(errno.EFBIG), "20100"]
    retriever = reopen(tmp_path / "s")
    assert retriever.engine.ids() == [str(i) for i in range(100)]
    assert found(retriever, "copper", k=200, first_stage="lexical") == [str(i) for i in range(100)]
    assert found(retriever, "copper 7", k=1) == ["7"]
    assert len(list((tmp_path / "s" / "segments").iterdir())) == 1


R31_SAVING = """
import sys
from langchain_sidr import SiDRRetriever
retriever = SiDRRetriever.from_texts([])
for i in range(1000):
    retriever.add_texts([f"copper {i} {j}" for j in range(100)], ids=[f"{i}-{j}" for j in range(100)])
    retriever.save(sys.argv[1])
    print(i, flush=True)
"""


@pytest.mark.parametrize("wait", [0.0, 0.03])
def test_R31_a_killed_save_leaves_one_whole_state(
    reopen: Make, start_child: Callable[..., subprocess.Popen[str]], tmp_path: Path, wait: float
) -> None:
    process = start_child(R31_SAVING, tmp_path / "s")
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(wait)
    process.kill()
    last = int((first + process.stdout.read()).split()[-1])
    process.wait()
    retriever = reopen(tmp_path / "s", first_stage="lexical")
    n = len(retriever.engine)
    assert n in (100 * (last + 1), 100 * (last + 2))
    assert retriever.engine.ids() == [f"{i}-{j}" for i in range(n // 100) for j in range(100)]
    assert len(retriever.invoke("copper", k=n + 1)) == n


@pytest.mark.parametrize("keep", [0.5, 0.0])
def test_R31_a_cut_file_is_an_error_by_name_or_rebuilt(make: Make, reopen: Make, tmp_path: Path, keep: float) -> None:
    retriever = make([f"copper {i}" for i in range(300)], path=tmp_path / "good")
    retriever.invoke("copper", rerank=20)
    expected = retriever.invoke("copper 7", k=300, rerank=3)
    retriever.close()
    files = [p.relative_to(tmp_path / "good") for p in (tmp_path / "good").rglob("*") if p.is_file()]
    refused = set()
    for i, name in enumerate(files):
        shutil.copytree(tmp_path / "good", tmp_path / f"cut{i}")
        os.truncate(tmp_path / f"cut{i}" / name, int((tmp_path / "good" / name).stat().st_size * keep))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                documents = reopen(tmp_path / f"cut{i}").invoke("copper 7", k=300, rerank=3)
            except IndexFormatError as e:
                documents, message = expected, str(e)
                refused.add(name.name)
            else:
                message = str(name)
        assert [(d.id, d.page_content) for d in documents] == [(d.id, d.page_content) for d in expected]
        # Embeddings that had to be made again were padded differently, which the design allows 1e-5 before rounding.
        assert scores(documents) == pytest.approx(scores(expected), rel=1e-3)
        assert str(name) in message
    assert refused == {"passages.db", "sidr.json", "retriever.json"}


R32_HOLDING = """
import sys, time
from pathlib import Path
from langchain_sidr import SiDRRetriever
retriever = SiDRRetriever.open(sys.argv[1])
retriever.add_texts([f"copper {i}" for i in range(500)], ids=[f"a-{i}" for i in range(500)])
print(len(retriever.engine), flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
"""


def test_R32_two_processes_write_one_folder(
    make: Make, reopen: Make, start_child: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    make(path=tmp_path / "s", weighting="binary").close()
    second = reopen(tmp_path / "s", k=2000, first_stage="lexical")
    first = start_child(R32_HOLDING, tmp_path / "s", tmp_path / "go")
    assert first.stdout is not None
    assert first.stdout.readline() == "500\n"
    texts, names = [f"copper {i}" for i in range(500)], [f"b-{i}" for i in range(500)]
    for write in (lambda: second.add_texts(texts, ids=names), lambda: second.delete(["a-0"])):
        with pytest.raises(StoreLockedError, match=rf"process {first.pid}\b"):
            write()
    assert found(second, "copper") == [f"a-{i}" for i in range(500)]
    (tmp_path / "go").touch()
    first.wait(timeout=60)
    assert second.add_texts(texts, ids=names) == names
    third = reopen(tmp_path / "s", k=2000, read_only=True, first_stage="lexical")
    assert sorted(map(str, found(third, "copper"))) == sorted([f"{x}-{i}" for x in "ab" for i in range(500)])


def test_R34_the_folder_is_deleted_or_replaced(make: Make, reopen: Make, tmp_path: Path) -> None:
    path = tmp_path / "s"
    old = make(["alpha"], ids=["a"], path=path)
    old.invoke("alpha", rerank=1)
    shutil.rmtree(path)
    new = make(["beta"], ids=["b"], path=path)
    again = reopen(path)
    for retriever in (new, again):
        assert found(retriever, "beta", rerank=1) == ["b"]
        assert found(retriever, "alpha", first_stage="lexical") == []
        assert "a" not in found(retriever, "alpha", rerank=1)
    assert found(old, "alpha") == ["a"]
    with pytest.raises(SidrError, match="replaced"):
        old.add_texts(["alpha more"])
    assert found(again, "beta") == ["b"]
    assert again.engine.ids() == ["b"]


R35_WRITING = """
import locale, sys
from langchain_sidr import SiDRRetriever
texts = ["\\u00e9 caf\\u00e9", "\\u6771\\u4eac", "\\U0001f680 rocket"]
ids, metadatas = ["\\u00e9", "b", "\\U0001f680"], [{"\\u00e9": "\\u6771"}, None, None]
retriever = SiDRRetriever.from_texts(texts, metadatas, ids=ids, path=sys.argv[1])
print(locale.getlocale()[1])
"""
R35_READING = """
import sys
from langchain_sidr import SiDRRetriever
retriever = SiDRRetriever.open(sys.argv[1], score_key=None)
documents = [retriever.get_by_ids(retriever.engine.ids()), retriever.invoke("caf\\u00e9", first_stage="lexical")]
print(ascii([[(d.id, d.page_content, d.metadata) for d in found] for found in documents]))
"""


def test_R35_text_files_are_utf8_whatever_the_locale(tmp_path: Path) -> None:
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    assert child(R35_WRITING, tmp_path / "plain", **plain) == "None\n"
    child(R35_WRITING, tmp_path / "utf8", PYTHONUTF8="1")
    rows = [("é", "é café", {"é": "東"}), ("b", "東京", {}), ("🚀", "🚀 rocket", {})]
    expected = f"{[rows, rows[:1]]!a}\n"
    assert child(R35_READING, tmp_path / "plain", PYTHONUTF8="1") == expected
    assert child(R35_READING, tmp_path / "utf8", **plain) == expected


def test_R37_settings_are_saved_too(make: Make, reopen: Make, tmp_path: Path) -> None:
    own = Weighting((1, 3), (1.0, 0.4), 0.5, 0.25, 0.5, 0.3)
    options: dict[str, Any] = {"normalization": "none", "max_length": 128}
    mine: dict[str, Any] = {
        "k": 7,
        "rerank": 3,
        "min_score": 0.01,
        "max_active_dims": 30,
        "query_repr": "lex",
        "reranker": "theta",
        "score_key": "s",
        "id_key": "i",
        "title_key": "t",
        "filter": {"n": {"gte": 1}},
    }
    texts = [f"copper {i} river {i % 3} stone " * (1 + i % 2) for i in range(20)]
    queries = [f"copper {i} river" for i in range(20)]
    first = make(texts, metadatas=[{"n": i} for i in range(20)], path=tmp_path / "s", weighting=own, **options, **mine)
    first.batch(queries)  # now every candidate's embedding is kept
    expected, info = first.batch(queries), first.engine.info()
    first.close()
    # What belongs to the model is given again; the rest is kept.
    again = SiDRRetriever.open(tmp_path / "s", **options)
    assert again.engine.info() == info
    assert {name: getattr(again, name) for name in mine} == mine
    assert again.batch(queries) == expected
    again.close()
    file = tmp_path / "s" / "retriever.json"
    kept = json.loads(file.read_text("utf-8"))
    del kept["rerank"]
    file.write_text(json.dumps({**kept, "shoe_size": 44}), encoding="utf-8")
    changed = reopen(tmp_path / "s", **options)
    assert (changed.rerank, changed.min_score) == (0, 0.01)


def test_R38_an_index_made_with_another_vocabulary_or_format(make: Make, tmp_path: Path) -> None:
    made = make(["copper", "river"], path=tmp_path / "s")
    tokenizer = made.engine.info()["tokenizer"]
    made.close()
    described = json.loads((DEFAULT_FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = described["model"]["vocab"]
    other = tmp_path / "other"
    shutil.copytree(DEFAULT_FOLDER, other)
    vocabulary["copper"], vocabulary["river"] = vocabulary["river"], vocabulary["copper"]
    (other / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(IndexFormatError) as caught:
        SiDRRetriever.open(tmp_path / "s", model=other)
    fingerprint = make(model=other).engine.info()["tokenizer"]
    assert fingerprint != tokenizer
    assert tokenizer in str(caught.value)
    assert fingerprint in str(caught.value)
    marker = tmp_path / "s" / "sidr.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text("utf-8")), "format": 999}), encoding="utf-8")
    with pytest.raises(IndexFormatError, match=r"999.*supports 1"):
        SiDRRetriever.open(tmp_path / "s")


def test_R53_nested_metadata(make: Make, reopen: Make, tmp_path: Path) -> None:
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
    retriever = make(score_key=None, path=tmp_path / "s")
    retriever.add_documents([Document("copper", id="x", metadata=metadata)])
    retriever.save(tmp_path / "copy")

    def check(r: SiDRRetriever) -> None:
        for options in ({}, {"rerank": 1}, {"filter": {"big": 2**70, "langs": {"contains": "eng"}}}):
            (document,) = r.invoke("copper", **options)
            assert document.metadata == metadata
            assert {k: type(v) for k, v in document.metadata.items()} == {k: type(v) for k, v in metadata.items()}

    check(retriever)
    retriever.close()
    check(reopen(tmp_path / "s", score_key=None))
    check(reopen(tmp_path / "copy", score_key=None))


# Several threads, processes and event loops


class Failing:
    """A reranker that does not work."""

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: np.ndarray) -> np.ndarray:
        raise RuntimeError("the reranker's own")


class ByLength:
    """A reranker that prefers long texts."""

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: np.ndarray) -> np.ndarray:
        return np.array([len(p.text) for p in passages], dtype=np.float64)


def test_R49_reranking_nothing_and_empty_texts(make: Make) -> None:
    retriever = make(rerank=50)
    assert retriever.invoke("copper") == []
    retriever.add_texts(["copper", "copper kettle", "copper kettle stove", "", "  "], ids=list("abcde"))
    assert retriever.invoke("") == retriever.invoke("故乡") == []
    for options in ({}, {"reranker": "theta"}, {"reranker": "blend"}):
        assert set(found(retriever, "copper kettle", **options)) == set("abc")
    assert found(retriever, "copper", reranker=ByLength()) == list("cba")
    with pytest.raises(RuntimeError, match="own"):
        retriever.invoke("copper", reranker=Failing())


async def test_R50_async_retrieval_inside_a_running_loop(
    make: Make, slow_encoder: Callable[..., None], never_blocked: Callable[..., Any]
) -> None:
    retriever = make(["copper wire", "copper pipe", "falcon nest", "river stone"], ids=["w", "p", "f", "r"])
    queries = ["copper", "falcon", "river", "wire"] * 5
    expected = retriever.batch(queries)
    assert [d[0].id for d in expected[1:4]] == ["f", "r", "w"]
    assert await asyncio.gather(*map(retriever.ainvoke, queries)) == expected
    slow_encoder(retriever.engine, queries, 0.3)
    for documents in await never_blocked(functools.partial(retriever.abatch, queries[:8])):
        assert documents == expected[:8]


def test_R58_adding_while_searching(make: Make, reopen: Make, tmp_path: Path) -> None:
    anchors = [f"a{i}" for i in range(50)]
    retriever = make(
        [f"anchor {i}" for i in range(50)], ids=anchors, path=tmp_path / "s", num_threads=1, k=50, **LEXICAL
    )
    stop, faults, kept, saved = threading.Event(), [], [], []

    def guarded(work: Callable[[int], None]) -> None:
        n = 0
        while not stop.is_set():
            try:
                work(n)
            except Exception as e:
                faults.append(e)
                return
            n += 1

    def search(n: int) -> None:
        documents = retriever.invoke("anchor")
        assert ids(documents) == anchors
        assert all(d.page_content == f"anchor {str(d.id)[1:]}" for d in documents)

    def with_the_model(n: int) -> None:
        documents = retriever.invoke("anchor", first_stage="sidr", k=100)
        assert set(anchors) <= set(ids(documents))

    def add(n: int) -> None:
        kept.extend(retriever.add_texts([f"copper {n}"], ids=[f"x{n}"]))

    def passing(n: int) -> None:
        assert retriever.delete(retriever.add_texts(["river", "stone"])) == {"num_deleted": 2}

    def save(n: int) -> None:
        retriever.save(tmp_path / f"copy{n}")
        saved.append(tmp_path / f"copy{n}")
        stop.wait(0.5)

    works = (search, search, with_the_model, add, passing, save)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert set(retriever.engine.ids()) == {*anchors, *kept}
    assert saved
    for path in saved:
        copy = reopen(path, k=10_000, first_stage="lexical")
        assert found(copy, "anchor") == anchors
        assert found(copy, "copper") == [f"x{i}" for i in range(len(copy.invoke("copper")))]


# Numbers


def test_R43_half_precision(make: Make) -> None:
    retriever = make(k=3, **LEXICAL)
    vocabulary = retriever.engine.encoder.tokenizer.vocabulary
    tokens = map(vocabulary.token, range(vocabulary.dim))
    words = [token for token in tokens if token.isascii() and token.isalpha() and len(token) > 3][:2501]
    retriever.add_texts([" ".join(words[:-1]), " ".join(words)], ids=["B", "A"])
    documents = retriever.invoke(" ".join(words))
    assert ids(documents) == ["A", "B"]
    assert scores(documents) == [2501.0, 2500.0]


R59_ADDING = """
import json, resource, sys
from langchain_core.documents import Document
from langchain_sidr import SiDRRetriever

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def documents():
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield Document(row["text"], id=row["id"], metadata=row["metadata"])

retriever = SiDRRetriever.from_texts([], path=sys.argv[2], k=5)
before, source = peak(), documents()
given = retriever.add_documents(source)
print(json.dumps([len(given), given[-1], next(source, None), peak() - before]))
"""


def test_R59_memory_while_adding(reopen: Make, big: Any, tmp_path: Path) -> None:
    big.docs_jsonl(tmp_path, n=30_000)
    said = child(R59_ADDING, tmp_path / "docs_100k.jsonl", tmp_path / "s")
    n, last, left, grown = json.loads(said)
    assert (n, last, left) == (30_000, "doc-029999", None)
    assert grown < 1 << 30
    retriever = reopen(tmp_path / "s")
    assert len(retriever.engine) == 30_000
    assert "doc-029876" in found(retriever, "record 29876", k=5, first_stage="lexical")
    assert "doc-029876" in found(retriever, "record 29876", k=5)
    assert {d.metadata["shard"] for d in retriever.invoke("river bridge", k=20, filter={"shard": 3})} == {3}


def test_R62_shapes_at_the_edges(make: Make) -> None:
    queries = ["copper river", "故乡", "river"]
    for n in (1, 3):
        retriever = make([f"copper {'river ' * i}" for i in range(n)])
        for k in (1, 5):
            for rerank in (0, 4):
                bound = retriever.bind(k=k, rerank=rerank)
                single = [bound.invoke(query) for query in queries]
                assert [len(documents) for documents in single][:2] == [min(k, n), 0]
                assert bound.batch(queries) == single
                assert bound.batch(queries[:1]) == single[:1]
                assert bound.batch([]) == []


def weights_times(monkeypatch: pytest.MonkeyPatch, retriever: SiDRRetriever) -> list[float]:
    """A list whose last number multiplies every weight that the encoder gives a question."""
    factors = [1.0]

    def scaling(encode: Callable[..., SparseVectors]) -> Callable[..., SparseVectors]:
        def scaled(texts: Sequence[str], **arguments: Any) -> SparseVectors:
            theta = encode(texts, **arguments)
            if arguments.get("representation") == "bot":
                return theta
            weights = (theta.weights * factors[-1]).astype(np.float32)
            return SparseVectors(theta.indptr, theta.dims, weights, theta.dim)

        return scaled

    encoder = retriever.engine.encoder
    for name in ("encode_queries", "encode_binary_queries"):
        monkeypatch.setattr(encoder, name, scaling(getattr(encoder, name)))
    return factors


def test_R64_scaling_the_query_changes_no_order(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = make([" ".join(WORDS[: 1 + i % 10]) for i in range(20)], k=20, weighting="binary", score_key=None)
    query = "a bridge over the river in winter"
    theta = retriever.engine.encode_queries([query])
    factors = weights_times(monkeypatch, retriever)
    expected = retriever.invoke(query)
    assert len(expected) >= 10
    for factor in (1e-12, 2.0**-40, 2.0**40, 1e12):
        factors.append(factor)
        assert retriever.invoke(query) == expected
    factors.append(0.0)
    assert retriever.invoke(query) == []
    for factor, said in ((np.nan, "finite"), (np.inf, "finite"), (-1.0, "negative")):
        weights = (theta.weights * factor).astype(np.float32)
        with pytest.raises(ValueError, match=said):
            retriever.engine.search_vectors(SparseVectors(theta.indptr, theta.dims, weights, theta.dim))


@pytest.mark.parametrize("factor", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{}, {"rerank": 2}, {"search": "full"}])
def test_R64_weights_of_an_encoder_that_are_not_finite(
    make: Make, monkeypatch: pytest.MonkeyPatch, factor: float, options: dict[str, Any]
) -> None:
    retriever = make(["copper river", "river stone"], **options)
    weights_times(monkeypatch, retriever).append(factor)
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="finite"):
        retriever.invoke("copper river")
