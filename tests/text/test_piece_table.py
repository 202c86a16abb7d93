from __future__ import annotations

import json
import random

import numpy as np
import pytest

from sidr_rag.text.key_table import PADDING_BYTES
from sidr_rag.text.wordpiece import WordPiece


def ids_together(word_piece: WordPiece, words: list[str]) -> list[list[int]]:
    encoded = [word.encode("utf-8") for word in words]
    lengths = np.array([len(word) for word in encoded], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    order, ids, n_ids = word_piece.ids_of_spans(b"".join([*encoded, bytes(PADDING_BYTES)]), starts, lengths)
    found: list[list[int]] = [[] for _ in words]
    for word, part in zip(order.tolist(), np.split(ids, np.cumsum(n_ids)[:-1]), strict=True):
        assert not found[word]
        found[word] = part.tolist()
    return found


def test_words_together_equal_words_alone(bert_json) -> None:
    vocab = json.loads(bert_json.read_text(encoding="utf-8"))["model"]["vocab"]
    word_piece = WordPiece(vocab, unk_id=vocab["[UNK]"])
    pieces = [token.removeprefix("##") for token in vocab]
    rng = random.Random(0)
    for n_words in (1, 500, 6000, 1, 500):  # the second 500 are found out by the table that the 6000 needed
        words = ["".join(rng.choices(pieces, k=rng.randint(1, 4))) for _ in range(n_words)]
        words = [word[: rng.randint(1, 150)] for word in words]
        assert ids_together(word_piece, words) == [word_piece.ids(word) for word in words]


@pytest.mark.parametrize("cut_long_words", [True, False])
@pytest.mark.parametrize("max_word_chars", [1, 6, 14, 15, 16, 100])
def test_any_vocabulary_and_length(max_word_chars, cut_long_words) -> None:
    rng = random.Random(max_word_chars)

    def text(longest: int) -> str:
        return "".join(rng.choices("abé字\U0001f600", weights=(9, 6, 3, 2, 1), k=rng.randint(1, longest)))

    tokens = [
        "[UNK]",
        "",
        "##",
        "a\0",
        "##\0",
        "##b",
        "a",
        *(text(17) for _ in range(300)),
        *("##" + text(9) for _ in range(200)),
    ]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    word_piece = WordPiece(vocab, unk_id=0, max_word_chars=max_word_chars, cut_long_words=cut_long_words)
    words = ["z", "abz", *(text(20) for _ in range(5000))]
    expected = [word_piece.ids(word) for word in words]
    assert [0] in expected
    assert any(len(ids) > 2 for ids in expected) or max_word_chars == 1
    assert ids_together(word_piece, words) == expected
