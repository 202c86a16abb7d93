"""BM25 as a first stage, exactly, by bm25s over the live passages of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError
from sidr_rag.fork_lock import ForkLock
from sidr_rag.index.bot_index import BotIndex
from sidr_rag.search.reference import NumpyKernel
from sidr_rag.search.scan import SeqHits

_STOPWORDS = "en"


@dataclass(frozen=True)
class Bm25:
    """BM25 in Lucene's form: `sidr.search(query, first_stage=Bm25())`, or `first_stage="bm25"`; needs `[bm25]`.

    Lower-cased English words, stop words left out, stemmed by PyStemmer. The index is made of all passages by the first
    search, held in memory, and made anew after the store has changed: it is for stores that change seldom, while beta
    search needs no such index. `first_stage="lexical"` has the same shape and none of the costs.

    Attributes:
        k1: how soon a word's repetition stops counting.
        b: how much of a passage's length counts, 0 to 1.
    """

    k1: float = 0.9
    b: float = 0.4

    def __post_init__(self) -> None:
        for name in ("k1", "b"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InvalidTypeError(f"{name}={value!r} is a {type(value).__name__}; give a number")
        if not self.k1 >= 0 or not 0 <= self.b <= 1:
            raise InvalidInputError(f"k1={self.k1!r}, b={self.b!r}: k1 must be at least 0 and b between 0 and 1")


class Bm25Index:
    """The words of all live passages of one state.

    Args:
        settings: BM25's constants.
        seqs: u64[n], ascending.
        contents: the passages' texts, in the same order.

    Raises:
        MissingExtraError: if bm25s or PyStemmer is absent.
    """

    def __init__(self, settings: Bm25, seqs: NDArray[np.uint64], contents: Iterable[str]) -> None:
        self._bm25s = _required("bm25s", "bm25s")
        self._stemmer = _required("Stemmer", "PyStemmer").Stemmer("english")
        self.seqs = seqs
        self._index: Any = None
        self._known: frozenset[str] = frozenset()
        words = self._words(list(contents))
        if any(words):  # bm25s has no index without words
            self._index = self._bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene", backend="numpy")
            self._index.index(words, show_progress=False)
            self._known = frozenset(self._index.vocab_dict)

    def search(self, query: str, k: int, allowed: NDArray[np.bool_] | None = None) -> SeqHits:
        """The best k passages that share a word with the query: score descending, then seq ascending.

        Args:
            query: the text.
            k: how many.
            allowed: bool[n], the passages that may be found; None for all.
        """
        known = [word for word in self._words([query])[0] if word in self._known]
        if not known:
            return np.empty(0, np.uint64), np.empty(0, np.float32)
        scores = np.asarray(self._index.get_scores(known), dtype=np.float64)
        rows, values = NumpyKernel().select(scores, None, allowed, k)
        return self.seqs[rows], values

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        words: list[list[str]] = self._bm25s.tokenize(
            list(texts), stopwords=_STOPWORDS, stemmer=self._stemmer, return_ids=False, show_progress=False
        )
        return words


class Bm25Keeper:
    """The last state's index of each setting that was asked for; threads wait while one is made."""

    def __init__(self, contents: Callable[[Sequence[int]], Iterable[str]]) -> None:
        self._contents = contents
        self._lock = ForkLock()
        self._kept: dict[Bm25, tuple[int, Bm25Index]] = {}

    def of(self, settings: Bm25, index: BotIndex) -> Bm25Index:
        """The index of a state.

        Raises:
            StaleStateError: if a passage of the state is gone.
            MissingExtraError: if bm25s or PyStemmer is absent.
        """
        with self._lock:
            kept = self._kept.get(settings)
            if kept is None or kept[0] != index.generation:
                seqs = index.live_seqs()
                kept = index.generation, Bm25Index(settings, seqs, self._contents(seqs.tolist()))
                self._kept[settings] = kept
            return kept[1]


def _required(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, "bm25", "first_stage='bm25'") from error
