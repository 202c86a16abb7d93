"""Text to token ids, in two ways: BERT's rules word by word, or any other tokenizer on whole texts."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError
from sidr_rag.text.normalize import normalize
from sidr_rag.text.plain import PlainText
from sidr_rag.text.vocabulary import Vocabulary, model_vocab
from sidr_rag.text.word_table import WordTable
from sidr_rag.text.wordpiece import WordPiece

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile("[\t\n\r ]")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9\s]")
_SEPARATORS = [0x0B, 0x0C, *range(0x1C, 0x20)]  # `normalize` makes spaces of them
_CONTROLS = [*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F]
_WINDOW = 8192
_MEMORIES_KEPT = 2

# BERT deletes these although Python counts them as white space: without normalization they separate nothing.
_BERT_CHUNK: Final = re.compile("(?:\\S|[\x0b\x0c\x1c-\x1f\x85])+")
_CHUNK: Final = re.compile(r"\S+")


class Pipeline(Protocol):
    """What a tokenizer does to text."""

    chunk_pattern: re.Pattern[str] | None

    def sequence_ids(self, text: str) -> list[int]:
        """Token ids of a text in order."""
        ...

    def occurrences(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Text (its position) and dimension of every occurrence of a dimension, in no particular order."""
        ...

    def parts(self, text: str, size: int) -> Iterator[str]:
        """The text in parts of about `size` characters whose dimensions add up to the text's."""
        ...


class BertPipeline:
    """BertNormalizer, BertPreTokenizer and WordPiece: white space always separates, so words are remembered.

    ASCII is split into words here; how other characters are spelled is asked of the Hugging Face normalizer and
    pre-tokenizer themselves.
    """

    def __init__(self, data: Mapping[str, Any], vocabulary: Vocabulary, *, nfkc: bool, cache_size: int) -> None:
        """Take over a parsed tokenizer.json for which `matches` is true.

        Raises:
            InvalidInputError: if the model has no unknown token.
        """
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer

        model, rules = data["model"], data["normalizer"]
        vocab = model_vocab(data)
        if model.get("unk_token") not in vocab:
            raise InvalidInputError("tokenizer: a WordPiece model.vocab must hold its unk_token")
        self._normalizer = BertNormalizer(
            clean_text=True,
            handle_chinese_chars=rules.get("handle_chinese_chars", True),
            strip_accents=rules.get("strip_accents"),
            lowercase=rules.get("lowercase", True),
        )
        self._pre_tokenizer = BertPreTokenizer()
        self._lowercase: bool = rules.get("lowercase", True)
        self._ascii_rules: dict[int, int | None] = dict.fromkeys(_CONTROLS)
        if nfkc:
            self._ascii_rules.update(dict.fromkeys(_SEPARATORS, ord(" ")))
        if self._lowercase:
            self._ascii_rules.update((upper, upper + 32) for upper in range(ord("A"), ord("Z") + 1))
        self._word_piece = WordPiece(
            vocab,
            unk_id=vocab[model["unk_token"]],
            prefix=model.get("continuing_subword_prefix", "##"),
            max_word_chars=model.get("max_input_chars_per_word", 100),
            cut_long_words=nfkc,
        )
        self._nfkc = nfkc
        self._vocabulary = vocabulary
        self._cache_size = cache_size
        # A thread takes one out while it works: no lock to wait for, or to inherit through a fork.
        self._memories: deque[tuple[PlainText, WordTable]] = deque(maxlen=_MEMORIES_KEPT)
        self.chunk_pattern: re.Pattern[str] | None = _CHUNK if nfkc else _BERT_CHUNK

    @staticmethod
    def matches(data: Mapping[str, Any]) -> bool:
        """Whether a parsed tokenizer.json describes exactly this pipeline."""
        rules, model = data.get("normalizer") or {}, data.get("model") or {}
        return (
            rules.get("type") == "BertNormalizer"
            and rules.get("clean_text") is True
            and (data.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
            and model.get("type") == "WordPiece"
            # Ordinary added tokens are searched for in the whole text, before any other rule.
            and all(added.get("special") for added in data.get("added_tokens") or ())
        )

    def sequence_ids(self, text: str) -> list[int]:
        """Token ids of a text in order."""
        ids: list[int] = []
        ids_of_word = self._word_piece.ids
        for word in self._words(text):
            ids += ids_of_word(word)
        return ids

    def occurrences(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Text (its position) and dimension of every occurrence of a dimension, in no particular order."""
        try:
            plain_text, words = self._memories.pop()
        except IndexError:
            plain_text = PlainText(self._words, lowercase=self._lowercase, size=self._cache_size)
            words = WordTable(self._vocabulary, self._word_piece, size=self._cache_size)
        result = words.occurrences(plain_text.lines(texts))
        if words.full:
            words = WordTable(self._vocabulary, self._word_piece, size=self._cache_size)
        self._memories.append((plain_text, words))
        return result

    def parts(self, text: str, size: int) -> Iterator[str]:
        """The text cut at white space after every `size` characters or more."""
        start = 0
        while (space := _SPACE.search(text, start + size)) is not None:
            yield text[start : space.start()]
            start = space.end()
        yield text[start:]

    def _words(self, text: str) -> list[str]:
        """The words of a text: what lies between white space and punctuation, and each punctuation character."""
        text = normalize(text) if self._nfkc else _SURROGATE.sub(" ", text)
        if text.isascii():
            return _ASCII_WORD.findall(text.translate(self._ascii_rules))
        text = self._normalizer.normalize_str(text)
        if text.isascii():
            return _ASCII_WORD.findall(text)
        words: list[str] = []
        for start in range(0, len(text), _WINDOW):  # the pre-tokenizer needs hundreds of bytes for each word
            found = self._pre_tokenize(text[start : start + _WINDOW])
            if start and found and self._pre_tokenize(seam := text[start - 1 : start + 1]) == [seam]:
                words[-1] += found.pop(0)
            words += found
        return words

    def _pre_tokenize(self, text: str) -> list[str]:
        return [word for word, _ in self._pre_tokenizer.pre_tokenize_str(text)]


class WholeTextPipeline:
    """Any Hugging Face tokenizer, applied to whole texts."""

    chunk_pattern: re.Pattern[str] | None = None

    def __init__(self, json_text: str, vocabulary: Vocabulary, *, nfkc: bool) -> None:
        """Build the tokenizer of a tokenizer.json.

        Raises:
            InvalidInputError: if the tokenizers package cannot read it.
        """
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_str(json_text)
        except Exception as error:  # the package raises bare Exception
            raise InvalidInputError(f"tokenizer: the tokenizers package cannot read the JSON: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self._token_to_dim = vocabulary.token_to_dim
        self._nfkc = nfkc

    def sequence_ids(self, text: str) -> list[int]:
        """Token ids of a text in order."""
        ids: list[int] = self._tokenizer.encode(self._prepared(text), add_special_tokens=False).ids
        return ids

    def occurrences(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Text (its position) and dimension of every occurrence of a dimension, in no particular order."""
        encodings = self._tokenizer.encode_batch_fast([self._prepared(t) for t in texts], add_special_tokens=False)
        ids = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        rows = np.repeat(np.arange(len(ids), dtype=np.uint32), [len(row) for row in ids])
        dims: NDArray[np.int32] = self._token_to_dim[np.concatenate([np.empty(0, np.int64), *ids])]
        is_dim = dims >= 0
        return rows[is_dim], dims[is_dim]

    def parts(self, text: str, size: int) -> Iterator[str]:
        """The text as a whole: nothing says where it could be cut."""
        yield text

    def _prepared(self, text: str) -> str:
        return normalize(text) if self._nfkc else _SURROGATE.sub(" ", text)
