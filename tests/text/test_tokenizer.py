from __future__ import annotations

import base64
import copy
import json
import pickle
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from sidr_rag.errors import InvalidInputError, InvalidTypeError, ModelNotFoundError
from sidr_rag.text import BagTokenizer, normalize
from sidr_rag.types import TokenCounts


def assert_equal_counts(a: TokenCounts, b: TokenCounts) -> None:
    assert a.dim == b.dim
    for name in ("indptr", "dims", "counts", "lengths"):
        x, y = getattr(a, name), getattr(b, name)
        assert x.dtype == y.dtype
        assert np.array_equal(x, y), name


def bag_pieces(tokenizer: BagTokenizer, text: str) -> set[str]:
    return {tokenizer.vocabulary.token(int(dim)) for dim in tokenizer.counts([text]).dims}


@pytest.fixture(scope="module")
def byte_level_json() -> str:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<pad>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the river and the stone under the bridge near the harbor"] * 20, trainer)
    return tokenizer.to_str()


class TestForm:
    def test_types_and_shapes(self, bag_tokenizer) -> None:
        counts = bag_tokenizer.counts(["the cat and the dog", "", "故乡 \u200b", "the"])
        assert (counts.indptr.dtype, counts.dims.dtype) == (np.int64, np.uint16)
        assert counts.counts.dtype == counts.lengths.dtype == np.uint32
        assert counts.indptr.tolist() == [0, 4, 4, 4, 5]
        assert counts.lengths.tolist() == [5, 0, 0, 1]
        assert counts.counts.max() == 2
        assert counts.dim == 29_523

    @pytest.mark.parametrize("texts", [[], ["", ""], ["   ", "\u200b"]])
    def test_empty_is_legal(self, texts, bag_tokenizer) -> None:
        counts = bag_tokenizer.counts(texts)
        assert len(counts) == len(texts)
        assert counts.indptr.tolist() == [0] * (len(texts) + 1)
        assert len(counts.dims) == 0
        assert bag_tokenizer.sequence_ids("") == []

    def test_a_generator_is_consumed_once_and_in_blocks(self, bag_tokenizer) -> None:
        taken = []

        def texts():
            for i in range(5000):
                taken.append(i)
                yield f"record {i} harbor"

        counts = bag_tokenizer.counts(texts())
        assert taken == list(range(5000))
        assert_equal_counts(counts, bag_tokenizer.counts([f"record {i} harbor" for i in range(5000)]))

    def test_wrong_types_are_named_without_showing_text(self, bag_tokenizer) -> None:
        with pytest.raises(InvalidTypeError, match=r"give \[text\]") as raised:
            bag_tokenizer.counts("secret words")
        assert "secret" not in str(raised.value)
        with pytest.raises(InvalidTypeError, match=r"texts\[1\] must be a str, not int"):
            bag_tokenizer.counts(["fine", 3])
        with pytest.raises(InvalidTypeError, match="text must be a str, not NoneType"):
            bag_tokenizer.sequence_ids(None)

    def test_an_error_leaves_the_tokenizer_usable(self, bag_tokenizer) -> None:
        with pytest.raises(InvalidTypeError):
            bag_tokenizer.counts(["newword" + str(time.time()), None])
        assert bag_tokenizer.counts(["fine"]).lengths.tolist() == [1]

    def test_special_ids(self, bag_tokenizer, byte_level_json) -> None:
        assert dict(bag_tokenizer.special_ids) == {"cls": 101, "sep": 102, "pad": 0, "unk": 100, "mask": 103}
        assert dict(BagTokenizer(byte_level_json).special_ids) == {"cls": 0, "sep": 1, "pad": 2, "unk": 3, "mask": 4}


class TestSettings:
    def test_fingerprint_changes_with_whatever_changes_ids(self, bert_json, bag_tokenizer, raw_tokenizer) -> None:
        text = bert_json.read_text(encoding="utf-8")
        swapped = json.loads(text)
        vocab = swapped["model"]["vocab"]
        vocab["river"], vocab["stone"] = vocab["stone"], vocab["river"]
        cased = json.loads(text)
        cased["normalizer"]["lowercase"] = False
        others = [
            raw_tokenizer,
            BagTokenizer(text, vocab_offset=0),
            BagTokenizer(json.dumps(swapped)),
            BagTokenizer(json.dumps(cased)),
        ]
        prints = {tokenizer.fingerprint for tokenizer in [bag_tokenizer, *others]}
        assert len(prints) == 5
        assert BagTokenizer(text, vocab_offset=999, cache_size=5).fingerprint == bag_tokenizer.fingerprint
        assert BagTokenizer(json.dumps(json.loads(text), indent=1)).fingerprint == bag_tokenizer.fingerprint

    def test_bad_settings(self, bert_json, tmp_path) -> None:
        with pytest.raises(InvalidInputError, match="normalization='nfc'"):
            BagTokenizer.from_file(bert_json, normalization="nfc")
        with pytest.raises(InvalidInputError, match="cache_size=0"):
            BagTokenizer.from_file(bert_json, cache_size=0)
        with pytest.raises(InvalidTypeError, match="cache_size"):
            BagTokenizer.from_file(bert_json, cache_size=1.5)
        with pytest.raises(ModelNotFoundError, match=r"missing\.json"):
            BagTokenizer.from_file(tmp_path / "missing.json")
        for content in (b"{", b"[]", b"{}", b"\xff\xfe"):
            (tmp_path / "bad.json").write_bytes(content)
            with pytest.raises(InvalidInputError, match=r"tokenizer\.json"):
                BagTokenizer.from_file(tmp_path / "bad.json")

    def test_pickle(self, bag_tokenizer, sample_texts) -> None:
        clone = pickle.loads(pickle.dumps(bag_tokenizer))
        assert clone.fingerprint == bag_tokenizer.fingerprint
        assert_equal_counts(clone.counts(sample_texts), bag_tokenizer.counts(sample_texts))

    def test_importing_is_light(self) -> None:
        code = (
            "import sys, sidr_rag.text; "
            "print([m for m in ('torch', 'numba', 'transformers', 'tokenizers') if m in sys.modules])"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
        assert out.stdout.strip() == "[]"


class TestCache:
    @pytest.mark.parametrize("cache_size", [1, 50, 1000])
    def test_overflow_changes_nothing(self, cache_size, bert_json, bag_tokenizer, sample_texts) -> None:
        small = BagTokenizer.from_file(bert_json, cache_size=cache_size)
        texts = [*sample_texts, *(f"item {i} {'x' * (i % 90)}{i} river" for i in range(5000))]
        for _ in range(2):
            assert_equal_counts(small.counts(texts), bag_tokenizer.counts(texts))
        assert_equal_counts(small.counts(texts[::-1]), bag_tokenizer.counts(texts[::-1]))

    def test_one_at_a_time_equals_all_at_once(self, bert_json, bag_tokenizer, sample_texts) -> None:
        fresh = BagTokenizer.from_file(bert_json)
        together = bag_tokenizer.counts(sample_texts)
        for i, text in enumerate(sample_texts):
            alone = fresh.counts([text])
            a, b = together.indptr[i : i + 2]
            assert np.array_equal(alone.dims, together.dims[a:b])
            assert np.array_equal(alone.counts, together.counts[a:b])

    def test_many_threads_at_once(self, bert_json, bag_tokenizer, sample_texts) -> None:
        shared = BagTokenizer.from_file(bert_json, cache_size=2000)
        slices = [[f"{text} {i % 7}" for text in sample_texts[i % 40 :]] for i in range(48)]
        expected = [bag_tokenizer.counts(texts) for texts in slices]
        with ThreadPoolExecutor(8) as pool:
            for found, right in zip(pool.map(shared.counts, slices), expected, strict=True):
                assert_equal_counts(found, right)

    def test_a_text_longer_than_a_block(self, bag_tokenizer, raw_tokenizer, monkeypatch, sample_texts) -> None:
        text = "\n".join(text.replace("\n", " ") for text in sample_texts)
        texts = ["before", text, "", text[::-1], "after"]
        for tokenizer in (bag_tokenizer, raw_tokenizer):
            expected = tokenizer.counts(texts)
            for size in (7, 100, 5000):
                with monkeypatch.context() as patch:
                    patch.setattr("sidr_rag.text.tokenizer._BLOCK_CHARS", size)
                    assert_equal_counts(tokenizer.counts(texts), expected)


class TestWholeTexts:
    @pytest.mark.parametrize("normalization", ["nfkc", "none"])
    def test_byte_level_bpe_equals_hugging_face(self, normalization, byte_level_json, sample_texts, row_counts) -> None:
        tokenizer = BagTokenizer(byte_level_json, normalization=normalization)
        hf = Tokenizer.from_str(byte_level_json)
        hf.encode_special_tokens = True
        counts = tokenizer.counts(sample_texts)
        for i, text in enumerate(sample_texts):
            if normalization == "nfkc":
                text = normalize(text)
            text = "".join(" " if "\ud800" <= c <= "\udfff" else c for c in text)
            expected = hf.encode(text, add_special_tokens=False).ids
            assert tokenizer.sequence_ids(sample_texts[i]) == expected
            assert row_counts(tokenizer, counts, i) == dict(Counter(j for j in expected if j >= 5))

    def test_more_than_65536_dimensions(self) -> None:
        vocab = {"[UNK]": 0} | {f"w{i}": i + 1 for i in range(70_000)}
        tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        bags = BagTokenizer(tokenizer.to_str())
        counts = bags.counts(["w69999 w1 w69999 nothing", "w0"])
        assert counts.dims.dtype == np.int32
        assert counts.dims.tolist() == [1, 69_999, 0]
        assert counts.counts.tolist() == [1, 2, 1]
        assert counts.lengths.tolist() == [3, 1]

    def test_ordinary_added_tokens_are_found_in_whole_texts(self, bert_json) -> None:
        data = json.loads(bert_json.read_text(encoding="utf-8"))
        added = copy.deepcopy(data["added_tokens"][0]) | {"id": 30_522, "content": "New York", "special": False}
        data["added_tokens"].append(added)
        tokenizer = BagTokenizer(json.dumps(data))
        assert tokenizer.chunk_pattern is None
        assert tokenizer.sequence_ids("in New York now") == [1999, 30_522, 2085]


class TestReportedCases:
    def test_expected_bags(self, shared_folder, bag_tokenizer, raw_tokenizer) -> None:
        path = shared_folder / "cases" / "inputs" / "expected_bags.json"
        entries = json.loads(path.read_text(encoding="utf-8"))["entries"]
        assert len(entries) > 20
        for entry in entries:
            text = entry["text"]
            raw = raw_tokenizer.counts([text])
            assert raw_tokenizer.vocabulary.dim_to_token[raw.dims].tolist() == entry["reference_ids"]
            pieces = bag_pieces(bag_tokenizer, text)
            assert pieces >= set(entry.get("must_include_pieces", ()))
            assert not pieces & set(entry.get("must_not_include_pieces", ()))
            if "must_include_pieces" not in entry and len(text) <= 100:
                assert pieces == set(entry["reference_pieces"])

    def test_nasty_strings(self, shared_folder, bag_tokenizer, raw_tokenizer, cut_word_ids) -> None:
        path = shared_folder / "cases" / "inputs" / "nasty_strings.json"
        texts = json.loads(path.read_text(encoding="utf-8"))["texts"]
        assert [bag_tokenizer.sequence_ids(t) for t in texts] == [cut_word_ids(normalize(t)) for t in texts]
        for tokenizer in (bag_tokenizer, raw_tokenizer):
            assert len(tokenizer.counts(texts)) == len(texts)

    def test_long_digests_are_cut_not_dropped(self, bag_tokenizer) -> None:
        first, second = "ef108f44a1af3cb0" * 8, "0d1e2f3a4b5c6d7e" * 8
        one, other = bag_pieces(bag_tokenizer, first), bag_pieces(bag_tokenizer, second)
        assert len(first) == 128
        assert one != other
        assert len(one) > 10
        assert "[UNK]" not in one | other

    def test_slides_and_utf16(self, bag_tokenizer) -> None:
        assert {"goals", "hire"} <= bag_pieces(bag_tokenizer, "Quarterly goals\x0bHire two welders")
        spaced = "i\x00n\x00v\x00o\x00i\x00c\x00e\x00"
        assert bag_tokenizer.sequence_ids(spaced) == bag_tokenizer.sequence_ids("invoice")

    def test_ligatures_both_ways(self, bag_tokenizer) -> None:
        for odd, plain in (("ﬁnancial", "financial"), ("eﬃciently", "efficiently"), ("１２３４", "1234")):
            assert bag_tokenizer.sequence_ids(odd) == bag_tokenizer.sequence_ids(plain)

    def test_markers_are_ordinary_text(self, bag_tokenizer) -> None:
        assert bag_pieces(bag_tokenizer, "[MASK]") == {"[", "mask", "]"}
        assert bag_tokenizer.sequence_ids("[SEP]") == [1031, 19_802, 1033]
        assert {"<", "|", ">"} <= bag_pieces(bag_tokenizer, "<|endoftext|>")

    @pytest.mark.parametrize("run", ["a", "^", " ", "\u00e9", "\U0001f600", "«", "base64", "Zz9+"])
    def test_a_million_characters_without_a_break(self, run, bert_json, grows_linearly) -> None:
        length = 300_000 if run == "\U0001f600" else 1_000_000
        if run == "base64":
            run = base64.b64encode(random.Random(4).randbytes(length * 3 // 4)).decode("ascii")
        expected = set(BagTokenizer.from_file(bert_json).counts(["kangaroo before walrus after"]).dims.tolist())

        def count(text: str, tokenizer: BagTokenizer) -> None:
            before = resident_bytes()
            counts = tokenizer.counts([text, "short"])
            assert expected <= set(counts.dims[: counts.indptr[1]].tolist())
            assert counts.lengths[1] == 1
            assert resident_bytes() - before < 300 << 20

        texts = ["kangaroo before " + (run * (n // len(run) + 1))[:n] + " walrus after" for n in (length // 4, length)]
        grows_linearly(count, *texts, fresh=lambda: BagTokenizer.from_file(bert_json))  # remembers nothing


def resident_bytes() -> int:
    status = Path("/proc/self/statm")
    return int(status.read_text(encoding="ascii").split()[1]) * 4096 if status.exists() else 0
