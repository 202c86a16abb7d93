import json

import numpy as np
import pytest

from sidr_rag.errors import FileReadError, InvalidInputError
from sidr_rag.train.data import read_beir, read_dpr, read_pairs
from sidr_rag.train.pool import Pool
from sidr_rag.train.sections import Data, Source

DPR = [
    {
        "question": "who?",
        "answers": ["Ada"],
        "positive_ctxs": [{"title": "T", "text": "Ada did."}],
        "hard_negative_ctxs": [{"title": "", "text": "Bob did."}],
    },
    {"question": "no positive", "answers": [], "positive_ctxs": [], "negative_ctxs": []},
    {"question": "why?", "positive_ctxs": [{"text": "Because, [so]."}], "negative_ctxs": [{"text": "No."}]},
]


def test_pairs(tmp_path, put_jsonl):
    path = put_jsonl(
        tmp_path / "p.jsonl.gz",
        [{"query": "q", "title": "", "text": "t", "answers": ["x", " "]}, {"query": " ", "text": "blank query"}],
    )
    (pair,) = read_pairs(path)
    assert (pair.query, pair.positives[0].text, pair.positives[0].title, pair.answers) == ("q", "t", None, ("x",))


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_dpr_streams_whatever_the_block(tmp_path, monkeypatch, block):
    monkeypatch.setattr("sidr_rag.train.data._BLOCK", block)
    path = tmp_path / "nq.json"
    path.write_text(json.dumps(DPR, indent=2), encoding="utf-8")
    first, second = read_dpr(path)
    assert (first.query, first.answers, first.negatives[0].text) == ("who?", ("Ada",), "Bob did.")
    assert second.positives[0].text == "Because, [so]."
    assert second.negatives[0].text == "No."


def test_beir(tmp_path, put_jsonl):
    put_jsonl(tmp_path / "corpus.jsonl", [{"_id": str(i), "title": "", "text": f"text {i}"} for i in range(3)])
    put_jsonl(tmp_path / "queries.jsonl", [{"_id": "a", "text": "qa"}, {"_id": "b", "text": "qb"}])
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\na\t0\t2\na\t1\t0\n", encoding="utf-8")
    (pair,) = read_beir(tmp_path)
    assert pair.query == "qa"
    assert [t.text for t in pair.positives] == ["text 0"]
    assert [t.text for t in pair.negatives] == ["text 1"]


@pytest.mark.parametrize(
    ("content", "place"),
    [('{"query": "q", "text": "t"}\n{"query": 3, "text": "t"}\n', "line 2"), ("{}\n", "line 1"), ("x\n", "line 1")],
)
def test_malformed_pairs_are_named(tmp_path, content, place):
    path = tmp_path / "bad.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FileReadError, match=rf"bad\.jsonl, {place}"):
        list(read_pairs(path))


@pytest.mark.parametrize(
    ("content", "says"), [("{}", "array"), ('[{"question": "q"}, {"que', "record 2"), ("[3]", "record 1")]
)
def test_malformed_dpr_is_named(tmp_path, content, says):
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FileReadError, match=says):
        list(read_dpr(path))


def pool_of(tmp_path, tokenizer, put_jsonl, records, **data):
    path = put_jsonl(tmp_path / "p.jsonl", records)
    return Pool(Data((Source(path),), **data), tokenizer, (1, 2), seed=5)


def test_passages_are_kept_once_and_titles_dropped_by_share(tmp_path, tiny_tokenizer, put_jsonl):
    records = [{"query": f"a{i}", "title": "a900", "text": f"a{i % 200} a1"} for i in range(400)]
    pool = pool_of(tmp_path, tiny_tokenizer, put_jsonl, records, title_dropout=0.25)
    again = pool_of(tmp_path, tiny_tokenizer, put_jsonl, records[::-1], title_dropout=0.25)
    titled = {text.removeprefix("a900 ") for text in pool.contents if text.startswith("a900 ")}
    assert len(pool.contents) == 200
    assert 0.65 < len(titled) / 200 < 0.85
    # Which titles are dropped depends on the passage, not on the order of reading.
    assert titled == {text.removeprefix("a900 ") for text in again.contents if text.startswith("a900 ")}


def test_collections_have_their_own_statistics(tmp_path, tiny_tokenizer, put_jsonl):
    one = put_jsonl(tmp_path / "one.jsonl", [{"query": "a5", "text": "a7 a7"}, {"query": "a6", "text": "a8"}])
    two = put_jsonl(tmp_path / "two.jsonl", [{"query": "a5", "text": "a7 a9 a9"}])
    more = put_jsonl(tmp_path / "more.jsonl", [{"text": "a7 a10"}])
    pool = Pool(Data((Source(one), Source(two, passages=(more,)))), tiny_tokenizer, (1, 2), seed=1)
    first, second, everything = pool.collections
    a7 = int(tiny_tokenizer.counts(["a7"]).dims[0])
    assert [c.index.n_live for c in pool.collections] == [2, 2, 4]
    assert [int(c.index.df[a7]) for c in pool.collections] == [1, 2, 3]
    assert second.pids.tolist() == [2, 3]
    assert everything.average_length == pytest.approx(8 / 4)
    assert first.segment.levels[1].dims_of(0).tolist() == [a7]
    assert pool.known_positives["a5"] == {0, 2}


def test_limits_draw_by_the_seed(tmp_path, tiny_tokenizer, put_jsonl):
    path = put_jsonl(tmp_path / "p.jsonl", [{"query": f"a{i}", "text": f"a{i}"} for i in range(50)])
    pool = Pool(Data((Source(path, limit=10),)), tiny_tokenizer, (1,), seed=1)
    same = Pool(Data((Source(path, limit=10),)), tiny_tokenizer, (1,), seed=1)
    other = Pool(Data((Source(path, limit=10),)), tiny_tokenizer, (1,), seed=2)
    queries = [[e.query for e in p.examples] for p in (pool, same, other)]
    assert len(queries[0]) == 10
    assert queries[0] == queries[1] != queries[2]
    assert np.array_equal(pool.by_source[0], np.arange(10))


def test_an_empty_source_is_refused(tmp_path, tiny_tokenizer, put_jsonl):
    with pytest.raises(InvalidInputError, match=r"sources\[0\]"):
        pool_of(tmp_path, tiny_tokenizer, put_jsonl, [{"query": "", "text": "a1"}])
