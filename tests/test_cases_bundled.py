"""The public cases with the bundled model: what a stub encoder ranks first has to be among the k best here."""
# ruff: noqa: N802

import asyncio
import importlib.util
import json
import math
import re
import shutil
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from sidr_rag import SiDR, SparseVectors
from sidr_rag.text import split_spans

ROOT = Path(__file__).resolve().parents[1]
K = 10
# Cases whose rankings are in the cases' own list; all of its documents are in one store with others around them.
RANKED = ("R02", "R04", "R05", "R11", "R13", "R16", "R17", "R19", "R22", "R23", "R25", "R47")
TESTED_ELSEWHERE = (
    ("R28", "integrations/langchain/tests/test_cases.py"),
    ("R29", "integrations/langchain/tests/test_cases.py"),
    ("R31", "integrations/langchain/tests/test_cases.py"),
    ("R32", "integrations/langchain/tests/test_cases.py"),
    ("R35", "integrations/langchain/tests/test_cases.py"),
    ("R37", "tests/test_cases_engine.py"),
    ("R38", "integrations/langchain/tests/test_cases.py"),
    ("R41", "tests/test_cases_engine.py"),
    ("R52", "integrations/langchain/tests/test_cases.py"),
    ("R53", "integrations/langchain/tests/test_cases.py"),
    ("R55", "integrations/llama_index/tests/test_sidr_retriever.py"),
    ("R56", "integrations/llama_index/tests/test_sidr_retriever.py"),
    ("R59", "integrations/langchain/tests/test_cases.py"),
)
# Raw vectors, and offsets of pieces: no encoder has a part in them, not even a stub.
WITHOUT_ENCODER = ("R43", "R46")


def bundled(texts, *, weighting="default", **arguments):
    return SiDR.from_texts(texts, weighting=weighting, backend="numpy", num_threads=1, **arguments)


def reopened(path, **arguments):
    return SiDR.open(path, backend="numpy", num_threads=1, **arguments)


def ids(results):
    return [r.passage.id for r in results]


def found(sidr, query, k=K, **arguments):
    return ids(sidr.search(query, k=k, **arguments))


def scored(results):
    return [(r.passage.id, r.score) for r in results]


@pytest.fixture(scope="session")
def make_big(case_inputs):
    spec = importlib.util.spec_from_file_location("make_big", case_inputs / "make_big.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def picture(make_big, tmp_path_factory):
    folder = tmp_path_factory.mktemp("picture")
    make_big.base64_line(folder)
    return (folder / "base64.md").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def everything(rankings, make_big):
    """A store of every ranked case's documents ("case:id") and 200 others."""
    texts = {f"{case['case']}:{d['id']}": d["text"] for case in rankings for d in case["docs"]}
    texts |= {f"other{i}": make_big.words(i, 12) for i in range(200)}
    with bundled(texts.values(), ids=texts.keys()) as sidr:
        yield sidr


def test_every_case_is_run_with_the_bundled_model(case_inputs):
    report = (case_inputs.parent / "public-reports.md").read_text(encoding="utf-8")
    reported = set(re.findall(r"^### (R\d+) ", report, flags=re.MULTILINE))
    here = {match[1] for name in globals() if (match := re.match(r"test_(R\d+)_", name))}
    elsewhere = {case for case, _ in TESTED_ELSEWHERE}
    assert here | set(RANKED) | elsewhere | set(WITHOUT_ENCODER) == reported
    assert elsewhere.isdisjoint({*here, *RANKED, *WITHOUT_ENCODER})
    for case, file in TESTED_ELSEWHERE:
        assert re.search(rf"\b(test_)?{case}(_|\b)", (ROOT / file).read_text(encoding="utf-8")), (case, file)


@pytest.mark.parametrize("name", RANKED)
def test_the_named_documents_are_among_the_best(everything, rankings, name):
    cases = [case for case in rankings if case["case"] == name]
    assert cases
    for case in cases:
        named = {f"{name}:{i}" for group in case["expected_groups"] for i in group}
        for arguments in ({}, {"first_stage": "lexical"}, {"query_repr": "lex"}):
            results = everything.search(case["query"], k=K, **arguments)
            assert named <= set(ids(results)), (case["query"], arguments)
            assert all(r.score > 0 and math.isfinite(r.score) for r in results)
        reranked = everything.search(case["query"], k=K, rerank=5)
        assert set(ids(reranked)) == set(found(everything, case["query"]))
        assert [r.reranked for r in reranked[:5]] == [True] * min(5, len(reranked))


def test_R01_k_larger_than_the_index():
    with bundled([]) as sidr:
        assert [sidr.search("copper", k=k) for k in (0, 1, 20)] == [[], [], []]
        sidr.add(["copper one", "copper two", "copper three"])
        assert [len(sidr.search("copper", k=k)) for k in (20, 3, 1, 0)] == [3, 3, 1, 0]
        for k in (-1, "5", 2.5, True):
            with pytest.raises((ValueError, TypeError), match=f"k={k!r}"):
                sidr.search("copper", k=k)


@pytest.mark.filterwarnings("error")
def test_R02_only_empty_texts():
    with bundled(["", "   ", "\u200b"], ids=list("abc")) as sidr:
        for arguments in ({}, {"rerank": 5}, {"search": "full"}, {"search": "alpha"}):
            assert sidr.search("invoice", **arguments) == []
            assert sidr.search("", **arguments) == []
        sidr.add(["invoice"], ids=["d"])
        for arguments in ({}, {"rerank": 5}, {"search": "full"}):
            assert found(sidr, "invoice", **arguments)[0] == "d"


def test_R04_an_empty_document_in_the_middle(tmp_path):
    texts = ["foo", "", "quick god", "quick fox", "   ", "dog"]

    def check(sidr):
        for query, named in (("quick", ["d2", "d3"]), ("dog", ["d5"])):
            results = sidr.search(query, k=6, rerank=6)
            assert set(named) <= set(ids(results))
            assert all(r.passage.text == texts[int(r.passage.id[1:])] for r in results)
            assert {"d1", "d4"}.isdisjoint(ids(results))
            assert sidr.search(query)[0].passage.id == named[0]

    with bundled(texts, ids=[f"d{i}" for i in range(6)], path=tmp_path / "s") as sidr:
        check(sidr)
    with reopened(tmp_path / "s") as sidr:
        check(sidr)
        sidr.delete(["d1"])
        check(sidr)


def test_R05_the_same_text_in_two_documents():
    text = "Refund window is 30 days."
    with bundled([text, "Shipping takes 5 days.", text], ids=list("acb")) as sidr:
        for arguments in ({}, {"rerank": 3}, {"search": "full"}, {"search": "alpha"}):
            results = sidr.search("refund window", k=2, **arguments)
            assert ids(results) == ["a", "b"]
            assert results[0].score == results[1].score
        sidr.delete(["a"])
        assert found(sidr, "refund window", 1) == ["b"]


def test_R07_after_a_delete_results_belong_to_the_right_texts(tmp_path):
    words = ["anchor", "copper", "falcon", "alpha", "beta", "river", "stone", "winter", "bridge", "garden"]

    def check(sidr, words):
        for search in ("beta", "full"):
            for i, results in enumerate(sidr.search(words, k=20, search=search)):
                assert {"0", "4", "9"}.isdisjoint(ids(results))
                assert all(r.passage.text == f"item {words[int(r.passage.id)]}" for r in results)
                if i not in (0, 4, 9):
                    assert results[0].passage.id == str(i)

    with bundled([f"item {w}" for w in words], ids=map(str, range(10)), path=tmp_path / "s") as sidr:
        sidr.search(words, search="full")
        assert sidr.delete(["0", "4", "9"]) == 3
        check(sidr, words)
        words += ["walrus", "kangaroo"]
        sidr.add(["item walrus", "item kangaroo"], ids=["10", "11"])
        check(sidr, words)
    with reopened(tmp_path / "s") as sidr:
        assert len(sidr) == 9
        check(sidr, words)


BUNDLED_CHILD = """
import sys
from sidr_rag import SiDR
with SiDR.open(sys.argv[1], backend="numpy") as sidr:
    results = [sidr.search(query, k=3, rerank=2) for query in sys.argv[2:]]
    print(len(sidr), [[(r.passage.id, r.score) for r in found] for found in results])
"""


def test_R08_what_was_added_after_the_build_is_there_after_reload(tmp_path, child):
    with bundled([f"filler {i}" for i in range(500)], ids=[f"f{i}" for i in range(500)]) as sidr:
        sidr.save(tmp_path / "s")
        sidr.add(["sfeqsbsr zebra"], ids=["new"])
        sidr.save(tmp_path / "s")
        expected = [scored(sidr.search(query, k=3, rerank=2)) for query in ("zebra", "filler 499")]
    assert [results[0][0] for results in expected] == ["new", "f499"]
    assert child(BUNDLED_CHILD, tmp_path / "s", "zebra", "filler 499").stdout == f"501 {expected}\n"


def test_R10_adding_one_or_a_few_short_documents():
    with bundled([]) as sidr:
        for texts, names in ((["one"], "a"), (["two"], "b"), (["three", "river"], "cd")):
            sidr.add(texts, ids=list(names))
            for text, name in zip(texts, names, strict=True):
                assert found(sidr, text)[0] == found(sidr, text, search="full")[0] == name


def test_R11_words_of_more_than_100_characters(everything, picture, case_inputs):
    with bundled([*(p.text for p in everything.get(everything.ids())), picture], ids=None) as sidr:
        assert sidr.search("fuse box layout", k=K)[0].passage.text == picture
    digests = [line.split()[-1] for line in (case_inputs / "digests.txt").read_text("utf-8").splitlines() if line]
    # The design cuts long words into pieces instead of dropping them, so a digest finds its own document first.
    for digest, own in zip(digests, ("h1", "h2", "g1", "g2", "g3"), strict=True):
        assert found(everything, digest)[0] == f"R11:{own}"
    assert found(everything, "\u6545" * 200) == []
    with bundled(["a" * 100, "a" * 101, "copper"], ids=["hundred", "more", "copper"]) as sidr:
        assert set(found(sidr, "a" * 100, 2)) == {"hundred", "more"}


def test_R13_special_tokens_typed_in_a_query(everything):
    encoder = everything.encoder
    # Plain pieces reach the encoder: a typed [PAD] or [SEP] is no padding and ends nothing.
    for typed in ("[MASK]", "[SEP]", "[PAD]", "[UNK]", "[CLS]"):
        rows = [encoder.encode_queries([text]).row(0) for text in (typed, f"copper {typed} river")]
        spelled = [encoder.encode_queries([text.lower()]).row(0) for text in (typed, f"copper {typed} river")]
        for (dims, weights), (plain_dims, plain_weights) in zip(rows, spelled, strict=True):
            assert len(dims)
            assert dims.tolist() == plain_dims.tolist()
            assert weights.tolist() == plain_weights.tolist()


def test_R14_lone_surrogates(tmp_path):
    texts = ["fine text", "bad \ud800 text", chr(0xD83D) + chr(0xDC4D) + " ok"]
    names = ["a", "id\ud800", "c"]

    def check(sidr):
        assert [p.text for p in sidr.get(names)] == texts
        for arguments in ({}, {"rerank": 3}, {"search": "full"}):
            assert found(sidr, "bad", **arguments)[0] == names[1]
            assert found(sidr, "\ud800 ok", **arguments)[0] == names[2]

    with bundled(texts, ids=names, path=tmp_path / "s") as sidr:
        check(sidr)
    with reopened(tmp_path / "s") as sidr:
        check(sidr)


def test_R16_nul_and_vertical_tab(case_inputs):
    v1 = (case_inputs / "slides_vt.txt").read_text(encoding="utf-8").split("\n")[0]
    spaced = "".join(c + "\0" for c in "invoice")
    with bundled([v1, "Quarterly targets for sales", spaced], ids=["v1", "v2", "v3"]) as sidr:
        for arguments in ({}, {"rerank": 3}):
            assert found(sidr, "goals", **arguments)[0] == "v1"
            assert found(sidr, "hire welders", **arguments)[0] == "v1"
            assert found(sidr, "invoice", **arguments)[0] == "v3"
            assert found(sidr, spaced, **arguments)[0] == "v3"


def test_R17_ligatures_and_full_width_characters(case_inputs):
    line = (case_inputs / "ligatures.txt").read_text(encoding="utf-8").splitlines()[0]
    pairs = (("financial", "ﬁnancial"), ("efficiently", "eﬃciently"), ("1234", "１２３４"), ("office", "oﬃce"))
    answers = []
    for text in (line, unicodedata.normalize("NFKC", line)):
        with bundled([text, "The closed shop at noon hours"], ids=["f1", "f2"]) as sidr:
            assert sidr.get(["f1"])[0].text == text
            for plain, odd in pairs:
                assert found(sidr, plain, rerank=2)[0] == "f1"
                answers.append(
                    [scored(sidr.search(query, rerank=rerank)) for query in (plain, odd) for rerank in (0, 2)]
                )
    for plain_first, plain_second, odd_first, odd_second in answers:
        assert plain_first[0][0] == "f1"
        assert (plain_first, plain_second) == (odd_first, odd_second)
    assert answers[:4] == answers[4:]


def test_R19_characters_outside_the_vocabulary(everything, case_inputs):
    assert everything.search("故乡") == everything.search("故乡", rerank=5) == []
    lines = (case_inputs / "cjk.txt").read_text(encoding="utf-8").splitlines()
    with bundled(lines, ids=["c1", "c2", "c3", "c4"]) as sidr:
        assert set(found(sidr, "明月", 2)) == {"c1", "c3"}
        # A question without a known character finds nothing, whatever the model would make of two [UNK].
        for arguments in ({}, {"rerank": 4}, {"search": "full"}, {"search": "alpha"}, {"first_stage": "lexical"}):
            assert found(sidr, "故乡", **arguments) == []


def test_R20_composed_and_decomposed_spelling(case_inputs):
    lines = (case_inputs / "nfc_nfd.txt").read_text(encoding="utf-8").splitlines()
    with bundled([*lines, "copper river"], ids=["nfc", "nfd", "other"]) as sidr:
        for word in ("バス", "한국어"):
            answers = [scored(sidr.search(unicodedata.normalize(form, word), k=2)) for form in ("NFC", "NFD")]
            assert answers[0] == answers[1]
            assert [name for name, _ in answers[0]] == ["nfc", "nfd"]
            # The texts differ in one word of their own, so only their shares of the question are equal.
            assert answers[0][0][1] == pytest.approx(answers[0][1][1], rel=0.05)


def test_R22_codes_versions_and_identifiers(everything, case_inputs):
    lines = (case_inputs / "identifiers.txt").read_text(encoding="utf-8").splitlines()
    with bundled([*lines, *(p.text for p in everything.get(everything.ids()) if p.text)]) as sidr:
        for query, line in (
            ("A002", lines[1]),
            ("CVE-2024-1234", lines[2]),
            ("adr 0003", lines[3]),
            ("getHTTPResponseCode", lines[5]),
            ("4021", lines[5]),
        ):
            for arguments in ({}, {"rerank": 20}):
                assert line in [r.passage.text for r in sidr.search(query, k=K, **arguments)]
            assert found(sidr, query.upper()) == found(sidr, query.lower()) == found(sidr, query)


def test_R23_different_texts_with_the_same_bag(tmp_path, case_inputs):
    rows = (case_inputs / "same_bag.csv").read_text(encoding="utf-8").splitlines()[1:]
    names, texts = zip(*(row.split(",") for row in rows), strict=True)
    with bundled(texts, ids=names, path=tmp_path / "s") as sidr:
        expected = scored(sidr.search("due 2023-02-01"))
    assert [name for name, _ in expected[:3]] == ["t1", "t2", "t3"]
    for threads in (1, 8):
        with SiDR.open(tmp_path / "s", backend="numpy", num_threads=threads) as sidr:
            for _ in range(3):
                assert scored(sidr.search("due 2023-02-01")) == expected
                assert found(sidr, "due 2023-02-01", 1) == ["t1"]
            batch = sidr.search(["due 2023-02-01", "host 192.168.1.10"] * 6, k=2)
            assert [ids(r) for r in batch] == [["t1", "t2"], ["t4", "t5"]] * 6


def test_R25_a_word_in_half_of_or_all_documents_still_scores():
    for weighting in ("default", "binary"):
        with bundled(["Hello there good man!", "It is quite windy in London"], weighting=weighting) as sidr:
            results = sidr.search("windy London")
            assert results[0].passage.text.endswith("London")
            assert results[0].score > 0
        with bundled(["pink pink pink pink", "blue pink", "pink"], weighting=weighting) as sidr:
            results = sidr.search("pink")
            assert len(results) == 3
            assert all(r.score > 0 for r in results)


def test_R26_a_filter_is_applied_before_the_cut_at_k(make_big, tmp_path):
    make_big.filter_corpus(tmp_path)
    lines = (tmp_path / "filter_corpus.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    query, amber = "copper harbor ledger", {"owner": "amber"}
    every = [f"f{i}" for i in range(4993, 5000)]
    with bundled(
        (r["text"] for r in rows), ids=(r["id"] for r in rows), metadatas=(r["metadata"] for r in rows)
    ) as sidr:
        assert set(found(sidr, query)).isdisjoint(every)
        assert found(sidr, query, 5, filter=amber) == every[:5]
        assert found(sidr, query, 10, filter=amber) == every
        assert found(sidr, query, 10, filter={"owner": "nobody"}) == []
        assert found(sidr, query, 5, filter=amber, rerank=20) == every[:5]


def test_R34_the_folder_is_deleted_or_replaced(tmp_path):
    path = tmp_path / "s"
    old = bundled(["alpha"], ids=["a"], path=path)
    assert found(old, "alpha", rerank=1) == ["a"]  # its embedding is in the folder
    shutil.rmtree(path)
    with bundled(["beta"], ids=["b"], path=path) as new, reopened(path) as again:
        for sidr in (new, again):
            assert found(sidr, "beta", rerank=1) == found(sidr, "beta", search="full") == ["b"]
            assert "a" not in found(sidr, "alpha", rerank=1)
        assert found(old, "alpha", rerank=1) == ["a"]
    old.close()


def test_R40_the_tail_of_a_long_document(make_big, tokenizer):
    long = [make_big.long_doc_needle(600), make_big.long_doc_needle(5000)]
    words = ["zeppelin", "maintenance", "schedule", "river"]
    short = [f"{words[i % 4]} stone ledger note {i}" for i in range(50)]
    names = [*(f"s{i}" for i in range(50)), "long600", "long5000"]
    query = "zeppelin maintenance schedule"
    with bundled([*short, *long], ids=names, weighting="binary") as sidr:
        assert found(sidr, query, 2) == ["long600", "long5000"]
        # A second stage that judges long texts by their whole may put short ones first; it loses none.
        assert {"long600", "long5000"} <= set(found(sidr, query, 10, rerank=10))
    with bundled([*short, *long], ids=names) as sidr:
        # The design's default weighting counts a passage's length, so 5,000 other tokens outweigh two more matches.
        every = found(sidr, query, 60)
        assert every[0] == "long600"
        assert "long5000" in every
        reranked = sidr.search(query, k=60, rerank=2)
        assert "long600" in {r.passage.id for r in reranked[:2]}
        assert len(reranked) == len(every)
    pieces = [
        (name, text[a:b])
        for name, text in zip(names[-2:], long, strict=True)
        for a, b in split_spans(text, tokenizer, max_tokens=160)
    ]
    texts, sources = [*short, *(text for _, text in pieces)], [*names[:50], *(name for name, _ in pieces)]
    with bundled(texts, ids=[f"{name}#{i}" for i, name in enumerate(sources)]) as sidr:
        results = sidr.search(query, k=K, rerank=4)
        best = {r.passage.id.split("#")[0] for r in results if "zeppelin maint" in r.passage.text}
        assert best == {"long600", "long5000"}


def test_R44_a_text_around_a_long_run(make_big, picture, tmp_path):
    make_big.runs(tmp_path)
    run = (tmp_path / "run_a.txt").read_text(encoding="utf-8")
    with bundled([run, f"kangaroo {picture} walrus", "river stone"], ids=["run", "picture", "other"]) as sidr:
        for word in ("kangaroo", "walrus"):
            assert {"run", "picture"} <= set(found(sidr, word, 2))
        start = time.thread_time()
        sidr.search("a" * 3_000, k=2)  # a question of many windows
        assert time.thread_time() - start < 15


def test_R49_reranking_nothing_and_empty_texts():
    class Failing:
        def rerank(self, query, passages, beta_scores):
            raise RuntimeError("the reranker's own")

    with bundled([]) as sidr:
        assert sidr.search("copper", rerank=5) == []
        sidr.add(["copper", "copper kettle", "copper kettle stove", "", "  "], ids=list("abcde"))
        assert sidr.search("", rerank=5) == []
        for reranker in (None, "theta", "blend"):
            results = sidr.search("copper kettle", k=5, rerank=50, reranker=reranker)
            assert sorted(ids(results)) == list("abc")
            assert all(r.reranked for r in results)
        with pytest.raises(RuntimeError, match="own"):
            sidr.search("copper", rerank=5, reranker=Failing())


def test_R50_searches_in_threads_of_a_running_loop(everything):
    queries = ["copper", "windy London", "refund window", "office"] * 3
    expected = [scored(everything.search(query, rerank=3)) for query in queries]

    async def together():
        return await asyncio.gather(*(asyncio.to_thread(everything.search, q, rerank=3) for q in queries))

    assert [scored(results) for results in asyncio.run(together())] == expected


def test_R58_adding_while_searching(run_beside, tmp_path):
    with bundled(
        [f"anchor {i}" for i in range(50)], ids=[f"a{i}" for i in range(50)], path=tmp_path / "s", weighting="binary"
    ) as sidr:

        def search(n):
            results = sidr.search("anchor", k=50, rerank=3)
            assert {r.passage.id for r in results} == {f"a{i}" for i in range(50)}
            assert all(r.passage.text == f"anchor {r.passage.id[1:]}" for r in results)

        def change(n):
            assert sidr.delete(sidr.add(["river stone", "copper"])) == 2

        run_beside(search, search, change, seconds=0.5)
        assert sidr.ids() == [f"a{i}" for i in range(50)]


def test_R61_an_empty_index_is_still_an_index():
    with bundled(["copper"], ids=["x"]) as first, bundled([]) as empty:
        for arguments in ({}, {"rerank": 3}, {"search": "full"}):
            assert empty.search("copper", **arguments) == []
            assert found(first, "copper", **arguments) == ["x"]


def test_R62_shapes_at_the_edges():
    queries = ["copper river", "故乡", "river"]
    for n in (1, 3):
        with bundled([f"copper {'river ' * i}" for i in range(n)]) as sidr:
            for k in (1, 5):
                for arguments in ({}, {"rerank": 4}, {"search": "full"}):
                    single = [sidr.search(query, k=k, **arguments) for query in queries]
                    assert [len(results) for results in single][:2] == [min(k, n), 0]
                    batch = sidr.search(queries, k=k, **arguments)
                    assert [ids(results) for results in batch] == [ids(results) for results in single]
                    for one, other in zip(batch, single, strict=True):
                        assert [r.score for r in one] == pytest.approx([r.score for r in other], rel=1e-5)
                    assert sidr.search(queries[:1], k=k, **arguments) == single[:1]
                    assert sidr.search([], k=k, **arguments) == []


def test_R64_scaling_the_query_changes_no_order(everything):
    theta = everything.encode_queries(["silver window over the river", "checksum of release 4.2"])

    def search(factor):
        scaled = SparseVectors(theta.indptr, theta.dims, (theta.weights * factor).astype(np.float32), theta.dim)
        return everything.search_vectors(scaled, k=20).ids

    expected = search(1.0)
    assert all(len(names) > 5 for names in expected)
    for factor in (1e-12, 2.0**-40, 2.0**40, 1e12):
        assert search(factor) == expected
    assert search(0.0) == [[], []]
