"""Text to bags of tokens, without a model."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from sidr_rag.errors import InvalidInputError, InvalidTypeError, ModelNotFoundError
from sidr_rag.inputs import as_count
from sidr_rag.text.counting import CountsBuilder
from sidr_rag.text.normalize import NORMALIZER_VERSION
from sidr_rag.text.pipelines import BertPipeline, Pipeline, WholeTextPipeline
from sidr_rag.text.vocabulary import Vocabulary
from sidr_rag.types import TokenCounts

if TYPE_CHECKING:
    from sidr_rag.text.workers import CountingWorkers

Normalization = Literal["nfkc", "none"]

_BLOCK_TEXTS = 4096
_BLOCK_CHARS = 1 << 20
_SPECIAL_SPELLINGS = {
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "mask": ("[MASK]", "<mask>"),
}


class BagTokenizer:
    """Turns texts into counts of vocabulary dimensions, and into token ids for the encoder.

    Special tokens spelled out in a text ("[MASK]") are ordinary text. With normalization "nfkc", texts pass through
    `normalize` first, and words longer than the tokenizer's limit (100 characters) are cut into pieces of that
    length; the ids otherwise equal the Hugging Face tokenizer's on the normalized text. With "none" they equal the
    Hugging Face tokenizer's on the text as given. Lone surrogates separate words in both.

    One tokenizer may be used by many threads at once, survives a fork, and can be pickled.
    """

    def __init__(
        self,
        json_text: str,
        *,
        vocab_offset: int | None = None,
        normalization: Normalization = "nfkc",
        cache_size: int = 262_144,
        max_tokens: int | None = None,
    ) -> None:
        """Build a tokenizer from the content of a Hugging Face tokenizer.json.

        Args:
            json_text: the file's content.
            vocab_offset: token ids below it are no dimensions; None finds it out (`Vocabulary`).
            normalization: "nfkc" or "none".
            cache_size: how many distinct words to remember, at about 100 bytes each.
            max_tokens: `counts` reads only so many tokens of each text, with a warning where one is longer; every
                token is then found in order, which takes about ten times as long. None reads the whole text.

        Raises:
            InvalidInputError: if an argument's value cannot be used.
            InvalidTypeError: if `vocab_offset`, `cache_size` or `max_tokens` is not an int.
        """
        if normalization not in get_args(Normalization):
            raise InvalidInputError(f'normalization={normalization!r} must be "nfkc" or "none"')
        if isinstance(cache_size, bool) or not isinstance(cache_size, int):
            raise InvalidTypeError(f"cache_size must be an int, not {type(cache_size).__name__}")
        if cache_size < 1:
            raise InvalidInputError(f"cache_size={cache_size} must be at least 1")
        self._max_tokens = None if max_tokens is None else as_count("max_tokens", max_tokens, least=1)
        data = _parsed(json_text)
        self._arguments = (json_text, vocab_offset, normalization, cache_size, max_tokens)
        self._vocabulary = Vocabulary.from_tokenizer_json(data, vocab_offset)
        self.normalization: str = normalization
        self.special_ids: Mapping[str, int] = MappingProxyType(_special_ids(data, self._vocabulary))
        self.fingerprint: str = _fingerprint(data, self._vocabulary, normalization, max_tokens)
        self._lent = threading.local()
        nfkc = normalization == "nfkc"
        self._pipeline: Pipeline
        if BertPipeline.matches(data):
            self._pipeline = BertPipeline(data, self._vocabulary, nfkc=nfkc, cache_size=cache_size)
        else:
            self._pipeline = WholeTextPipeline(json_text, self._vocabulary, nfkc=nfkc)

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        *,
        vocab_offset: int | None = None,
        normalization: Normalization = "nfkc",
        cache_size: int = 262_144,
        max_tokens: int | None = None,
    ) -> BagTokenizer:
        """Read a Hugging Face tokenizer.json; the other arguments are the constructor's.

        Raises:
            ModelNotFoundError: if there is no such file.
            InvalidInputError: if it is no tokenizer.json, or an argument's value cannot be used.
        """
        try:
            json_text = Path(path).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise ModelNotFoundError(
                f"path={str(path)!r}: no such file; give the path of a Hugging Face tokenizer.json"
            ) from error
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                f"path={str(path)!r}: not UTF-8 text; give a Hugging Face tokenizer.json"
            ) from error
        return cls(
            json_text,
            vocab_offset=vocab_offset,
            normalization=normalization,
            cache_size=cache_size,
            max_tokens=max_tokens,
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The space that `counts` speaks of."""
        return self._vocabulary

    @property
    def chunk_pattern(self) -> re.Pattern[str] | None:
        """Matches the parts of a text that are tokenized independently of each other; None if there are no such."""
        return self._pipeline.chunk_pattern

    def sequence_ids(self, text: str) -> list[int]:
        """The text's token ids in order, [UNK] included, without special tokens.

        Raises:
            InvalidTypeError: if `text` is not a string.
        """
        if not isinstance(text, str):
            raise InvalidTypeError(f"text must be a str, not {type(text).__name__}")
        return self._pipeline.sequence_ids(text)

    def counts(self, texts: Iterable[str]) -> TokenCounts:
        """Count the dimensions of every text; an iterator is consumed once, a block of texts at a time.

        Returns:
            One row per text; a text without any dimension has an empty row.

        Raises:
            InvalidTypeError: if `texts` is one string, or one of them is not a string.
        """
        workers: CountingWorkers[Any] | None = getattr(self._lent, "workers", None)
        return self.counts_here(texts) if workers is None else workers.counts(texts)

    @contextlib.contextmanager
    def counting_with(self, workers: CountingWorkers[Any] | None) -> Iterator[None]:
        """Within the block, let this thread's calls of `counts` take what the workers have counted ahead."""
        self._lent.workers = workers
        try:
            yield
        finally:
            self._lent.workers = None

    def counts_here(self, texts: Iterable[str]) -> TokenCounts:
        """The same as `counts`, in this process."""
        if self._max_tokens is not None:
            return self._cut_counts(texts, self._max_tokens)
        builder = CountsBuilder(self._vocabulary.dim)
        for block in _blocks(texts):
            if len(block) == 1 and len(block[0]) > _BLOCK_CHARS:
                self._count_long(block[0], builder)
            else:
                builder.add_block(*self._pipeline.occurrences(block), n_rows=len(block))
        return builder.result()

    def _cut_counts(self, texts: Iterable[str], most: int) -> TokenCounts:
        """Counts of each text's first `most` tokens, [UNK] included."""
        builder = CountsBuilder(self._vocabulary.dim)
        excess: list[int] = []
        for block in _blocks(texts):
            for text in block:
                ids = np.asarray(self.sequence_ids(text), dtype=np.int64)
                if len(ids) > most:
                    excess.append(len(ids) - most)
                dims = self._vocabulary.token_to_dim[ids[:most]]
                builder.add_row(np.bincount(dims[dims >= 0], minlength=self._vocabulary.dim))
        if excess:
            warnings.warn(
                f"max_tokens={most} left out {sum(excess)} tokens of {len(excess)} texts; they cannot be found by them",
                stacklevel=4,
            )
        return builder.result()

    def _count_long(self, text: str, builder: CountsBuilder) -> None:
        """Add one row, holding the dimensions of no more than a part of the text at a time."""
        dim = self._vocabulary.dim
        histogram = np.zeros(dim, dtype=np.int64)
        for part in self._pipeline.parts(text, _BLOCK_CHARS):
            _, dims = self._pipeline.occurrences([part])
            histogram += np.bincount(dims, minlength=dim)
        builder.add_row(histogram)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, self._arguments


def _rebuilt(
    json_text: str,
    vocab_offset: int | None,
    normalization: Normalization,
    cache_size: int,
    max_tokens: int | None = None,
) -> BagTokenizer:
    return BagTokenizer(
        json_text,
        vocab_offset=vocab_offset,
        normalization=normalization,
        cache_size=cache_size,
        max_tokens=max_tokens,
    )


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists of bounded size; one longer than a block comes alone."""
    if isinstance(texts, str):
        raise InvalidTypeError("texts must be an iterable of str, not one str; give [text]")
    block: list[str] = []
    chars = 0
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidTypeError(f"texts[{i}] must be a str, not {type(text).__name__}")
        size = len(text)
        if block and (len(block) == _BLOCK_TEXTS or chars + size > _BLOCK_CHARS):
            yield block
            block, chars = [], 0
        block.append(text)
        chars += size
    if block:
        yield block


def _parsed(json_text: str) -> dict[str, Any]:
    try:
        data = json.loads(json_text)
    except ValueError as error:
        raise InvalidInputError(f"tokenizer: not JSON ({error}); give a Hugging Face tokenizer.json") from error
    if not isinstance(data, dict):
        raise InvalidInputError("tokenizer: the JSON must be an object; give a Hugging Face tokenizer.json")
    return data


def _special_ids(data: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, int]:
    """Ids of the special tokens by role; a role that the tokenizer does not have is left out."""
    ids = {text: i for i, text in enumerate(vocabulary.tokens) if text}
    unk = data["model"].get("unk_token")
    found = {}
    for role, spellings in _SPECIAL_SPELLINGS.items():
        for spelling in (unk, *spellings) if role == "unk" else spellings:
            if spelling in ids:
                found[role] = ids[spelling]
                break
    return found


def _fingerprint(
    data: Mapping[str, Any], vocabulary: Vocabulary, normalization: str, max_tokens: int | None = None
) -> str:
    """Equal for tokenizers that give every text the same dimensions, in any process."""
    model = {key: value for key, value in data["model"].items() if key != "vocab"}
    parts = [
        vocabulary.tokens,
        vocabulary.dim_to_token.tolist(),
        [data.get("normalizer"), data.get("pre_tokenizer"), model, data.get("added_tokens")],
        # Without a limit nothing is added, so that stores made before there was one stay readable.
        [normalization, NORMALIZER_VERSION, unicodedata.unidata_version, *([] if max_tokens is None else [max_tokens])],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("ascii")).hexdigest()[:16]
