"""The tokenizer's ids are the Hugging Face tokenizer's."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from sidr_rag.text import BagTokenizer, normalize

SURROGATE = re.compile("[\ud800-\udfff]")


def shared_passages(folder: Path) -> Iterator[str]:
    for path in sorted((folder / "data" / "train").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if isinstance(row.get("text"), str) and len(row["text"]) < 1000:
                    yield f"{row['title']} {row['text']}" if row.get("title") else row["text"]


def test_sample_nfkc(sample_texts, bag_tokenizer, cut_word_ids, row_counts, id_counts) -> None:
    assert len(sample_texts) >= 300
    counts = bag_tokenizer.counts(sample_texts)
    for i, text in enumerate(sample_texts):
        expected = cut_word_ids(normalize(text))
        assert bag_tokenizer.sequence_ids(text) == expected, ascii(text)
        assert row_counts(bag_tokenizer, counts, i) == id_counts(expected), ascii(text)


def test_sample_raw(sample_texts, raw_tokenizer, hf_tokenizer, row_counts, id_counts) -> None:
    counts = raw_tokenizer.counts(sample_texts)
    for i, text in enumerate(sample_texts):
        expected = hf_tokenizer.encode(SURROGATE.sub(" ", text), add_special_tokens=False).ids
        assert raw_tokenizer.sequence_ids(text) == expected, ascii(text)
        assert row_counts(raw_tokenizer, counts, i) == id_counts(expected), ascii(text)


def test_every_character(bag_tokenizer, raw_tokenizer, hf_tokenizer) -> None:
    """Alone, inside a word, between digits, and beside a mark; blocks of like ideographs are only sampled."""
    codes = [c for c in range(0x110000) if not (0x3400 <= c < 0xD7A0 or c >= 0x20000) or c % 97 == 0]
    texts = [f"{chr(c)} a{chr(c)}B 1{chr(c)}2 {chr(c)}\u0301x" for c in codes if not 0xD800 <= c < 0xE000]
    for tokenizer, given_texts in ((bag_tokenizer, [normalize(t) for t in texts]), (raw_tokenizer, texts)):
        expected = [e.ids for e in hf_tokenizer.encode_batch_fast(given_texts, add_special_tokens=False)]
        assert_same_counts(tokenizer, texts, expected)
        for i in range(0, len(texts), 7):
            assert tokenizer.sequence_ids(texts[i]) == expected[i], ascii(texts[i])


@pytest.mark.slow
def test_100_000_real_passages(shared_folder, bag_tokenizer, raw_tokenizer, hf_tokenizer, cut_word_ids) -> None:
    passages = shared_passages(shared_folder)
    n = 0
    while n < 100_000 and (block := list(islice(passages, 4096))):
        normalized = [normalize(text) for text in block]
        expected = [e.ids for e in hf_tokenizer.encode_batch_fast(normalized, add_special_tokens=False)]
        # The raw text's ids are the same ones wherever normalization leaves the text as it is.
        changed = [i for i, text in enumerate(block) if normalized[i] != text]
        raw_expected = list(expected)
        fresh = hf_tokenizer.encode_batch_fast([block[i] for i in changed], add_special_tokens=False)
        for i, encoding in zip(changed, fresh, strict=True):
            raw_expected[i] = encoding.ids
        for i, text in enumerate(normalized):
            if re.search(r"\S{34}", text) and 100 in expected[i]:
                expected[i] = cut_word_ids(text)
        for tokenizer, ids in ((bag_tokenizer, expected), (raw_tokenizer, raw_expected)):
            assert_same_counts(tokenizer, block, ids)
            for i in range(0, len(block), 50):
                assert tokenizer.sequence_ids(block[i]) == ids[i]
        n += len(block)
    assert n >= 100_000


def assert_same_counts(tokenizer: BagTokenizer, texts: list[str], expected: list[list[int]]) -> None:
    counts = tokenizer.counts(texts)
    flat = np.array([i for ids in expected for i in ids], dtype=np.int64)
    rows = np.repeat(np.arange(len(texts)), [len(ids) for ids in expected])
    dims = tokenizer.vocabulary.token_to_dim[flat]
    keys, n = np.unique(rows[dims >= 0] << 16 | dims[dims >= 0], return_counts=True)
    found = np.repeat(np.arange(len(texts)), np.diff(counts.indptr)) << 16 | counts.dims
    assert np.array_equal(found, keys)
    assert np.array_equal(counts.counts, n)
    assert np.array_equal(counts.lengths, np.bincount(rows[dims >= 0], minlength=len(texts)))


_ODD_WORDS = [
    "word",
    "Wörter",
    "e\u0301",
    "don’t",
    "[MASK]",
    "##ing",
    "明月",
    "ハ\u3099",
    "한국",
    "½",
    "10²",
    "ﬃ",
    "😀",
]
_ODD_CHARS = list("İ-…！Ⅷ\x0b\0\x85\ufffd\ue000\xad\u200b\ud800\udfff\u3000\xa0\u2028\x1c \n\t")
_pieces = st.sampled_from([*_ODD_WORDS, *_ODD_CHARS, "J\u030c", "a" * 60, "é" * 60, "x" * 16, "0" * 17])
_texts = st.lists(_pieces | st.text(st.characters(), max_size=4), max_size=12).map("".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(_texts, max_size=4))
def test_arbitrary_text_nfkc(bag_tokenizer, cut_word_ids, row_counts, id_counts, texts) -> None:
    counts = bag_tokenizer.counts(texts)
    for i, text in enumerate(texts):
        expected = cut_word_ids(normalize(text))
        assert bag_tokenizer.sequence_ids(text) == expected
        assert row_counts(bag_tokenizer, counts, i) == id_counts(expected)


@settings(max_examples=300, deadline=None)
@given(st.lists(_texts, max_size=4))
def test_arbitrary_text_raw(raw_tokenizer, hf_tokenizer, row_counts, id_counts, texts) -> None:
    counts = raw_tokenizer.counts(texts)
    for i, text in enumerate(texts):
        expected = hf_tokenizer.encode(SURROGATE.sub(" ", text), add_special_tokens=False).ids
        assert raw_tokenizer.sequence_ids(text) == expected
        assert row_counts(raw_tokenizer, counts, i) == id_counts(expected)


@pytest.mark.parametrize(
    "rules",
    [
        {"lowercase": False},
        {"lowercase": True, "strip_accents": False},
        {"lowercase": False, "strip_accents": True, "handle_chinese_chars": False},
    ],
)
def test_other_bert_rules(rules, bert_json, sample_texts) -> None:
    data = json.loads(bert_json.read_text(encoding="utf-8"))
    data["normalizer"].update(rules)
    tokenizer = BagTokenizer(json.dumps(data), normalization="none")
    hf = Tokenizer.from_str(json.dumps(data))
    hf.encode_special_tokens = True
    expected = [hf.encode(SURROGATE.sub(" ", text), add_special_tokens=False).ids for text in sample_texts]
    assert_same_counts(tokenizer, sample_texts, expected)
    assert [tokenizer.sequence_ids(text) for text in sample_texts] == expected
