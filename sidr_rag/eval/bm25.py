"""BM25 by bm25s, over stemmed words or over the model's own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import MissingExtraError
from sidr_rag.protocols import Tokenizer
from sidr_rag.search.reference import NumpyKernel

_PURPOSE = "BM25"


class Words(Protocol):
    """Texts to the words that BM25 counts."""

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text, in order."""
        ...


class StemmedWords:
    """Lower-cased words without bm25s's English stop words, stemmed by PyStemmer.

    Raises:
        MissingExtraError: if bm25s or PyStemmer is absent.
    """

    def __init__(self) -> None:
        self._tokenize = _required("bm25s", "bm25s").tokenize
        self._stemmer = _required("Stemmer", "PyStemmer").Stemmer("english")

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text, in order."""
        words: list[list[str]] = self._tokenize(
            list(texts), stopwords="en", stemmer=self._stemmer, return_ids=False, show_progress=False
        )
        return words


class WordPieces:
    """A tokenizer's own tokens, those that are dimensions: BM25 over the same vocabulary as the model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text, in order, as the numbers of their dimensions."""
        to_dim = self._tokenizer.vocabulary.token_to_dim
        dims = (to_dim[np.asarray(self._tokenizer.sequence_ids(text), dtype=np.int64)] for text in texts)
        return [[str(d) for d in row.tolist() if d >= 0] for row in dims]


class Bm25:
    """BM25 in Lucene's form over texts held in memory.

    Args:
        texts: what to search.
        words: how texts become words.
        k1: how soon a word's repetition stops counting.
        b: how much of the text's length counts.

    Raises:
        MissingExtraError: if bm25s is absent.
    """

    def __init__(self, texts: Sequence[str], words: Words, *, k1: float = 0.9, b: float = 0.4) -> None:
        self._words = words
        self._bm25: Any = None
        self._known: set[str] = set()
        index = _required("bm25s", "bm25s").BM25(k1=k1, b=b, method="lucene", backend="numpy")
        counted = words(texts)
        if any(counted):  # bm25s has no index without words
            index.index(counted, show_progress=False)
            self._bm25 = index
            self._known = set(index.vocab_dict)

    def search(self, query: str, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best k texts that share a word with the query: score descending, then place ascending.

        Returns:
            rows i64[<= k], counted from 0 in the order of the texts, and scores f32[<= k].
        """
        known = [word for word in self._words([query])[0] if word in self._known]
        if not known:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        scores = np.asarray(self._bm25.get_scores(known), dtype=np.float64)
        return NumpyKernel().select(scores, None, None, k)


def _required(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, "eval", _PURPOSE) from error
