from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.text import Vocabulary


@pytest.fixture(scope="module")
def bert_data(bert_json: Path) -> dict:
    return json.loads(bert_json.read_text(encoding="utf-8"))


def small_tokenizer_data() -> dict:
    vocab = {"<s>": 0, "<pad>": 1, "hello": 2, "wor": 3, "##ld": 4, "<unk>": 5}
    added = [{"id": 0, "content": "<s>", "special": True}, {"id": 7, "content": "<mask>", "special": True}]
    return {"model": {"type": "WordPiece", "vocab": vocab, "unk_token": "<unk>"}, "added_tokens": added}


@pytest.mark.parametrize("offset", [None, 999])
def test_bert_has_29523_dimensions_from_999_on(bert_data: dict, offset: int | None) -> None:
    vocabulary = Vocabulary.from_tokenizer_json(bert_data, offset)
    assert vocabulary.dim == 29_523
    assert np.array_equal(vocabulary.dim_to_token, np.arange(999, 30_522))
    assert (vocabulary.token_to_dim[:999] == -1).all()
    assert vocabulary.token_to_dim[7308] == 7308 - 999
    assert vocabulary.token(7308 - 999) == "mask"
    assert vocabulary.dim_to_token.dtype == vocabulary.token_to_dim.dtype == np.int32


def test_special_and_unused_ids_are_never_dimensions() -> None:
    vocabulary = Vocabulary.from_tokenizer_json(small_tokenizer_data())
    assert vocabulary.dim_to_token.tolist() == [1, 2, 3, 4]
    assert vocabulary.token_to_dim.tolist() == [-1, 0, 1, 2, 3, -1, -1, -1]
    assert Vocabulary.from_tokenizer_json(small_tokenizer_data(), 2).dim_to_token.tolist() == [2, 3, 4]


def test_unigram_vocabularies_are_lists() -> None:
    data = {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]}}
    assert Vocabulary.from_tokenizer_json(data).dim_to_token.tolist() == [1, 2]


@pytest.mark.parametrize("offset", [-1, 8, 5])
def test_an_offset_that_leaves_nothing_is_named(offset: int) -> None:
    with pytest.raises(InvalidInputError, match=f"vocab_offset={offset}"):
        Vocabulary.from_tokenizer_json(small_tokenizer_data(), offset)


def test_wrong_types_and_missing_vocabularies() -> None:
    with pytest.raises(InvalidTypeError, match=r"vocab_offset.*str"):
        Vocabulary.from_tokenizer_json(small_tokenizer_data(), "999")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"model\.vocab"):
        Vocabulary.from_tokenizer_json({"version": "1.0"})


def test_dimensions_out_of_range_have_no_token() -> None:
    vocabulary = Vocabulary.from_tokenizer_json(small_tokenizer_data())
    with pytest.raises(InvalidInputError, match=r"dim=4 must lie in 0\.\.3"):
        vocabulary.token(4)
