"""BM25 over words in Python: bm25s, and rank_bm25, which LangChain's BM25Retriever runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.corpora import N_QUERIES, K
from benchmarks.peers import Bm25
from benchmarks.searchers.base import WORDS, Searcher, peer


class Bm25s(Searcher):
    """bm25s with numba; stemmed words, English stop words left out."""

    label = "bm25s (numba), the question's words"
    packages = ("bm25s", "PyStemmer", "numba")
    index = "bm25s"
    in_memory = True
    sets = (WORDS,)
    reads_texts = True
    has_recall = False

    def load(self) -> None:
        """The modules."""
        peer("bm25s", "bm25s")
        peer("Stemmer", "PyStemmer")

    def open(self) -> None:
        """Index all texts in memory."""
        self.load()
        self._bm25 = Bm25(list(self.corpus.texts()), backend="numba")

    def index_bytes(self) -> int:
        """Scores, rows and list starts."""
        return self._bm25.index_bytes()

    def take(self, name: str) -> None:
        """The questions' stemmed words."""
        self._words = self._bm25.words(self.corpus.questions[:N_QUERIES])

    def search(self, i: int) -> Any:
        """One question."""
        return self._bm25.search(self._words[i], K)

    def rows(self, found: Any) -> Sequence[int]:
        """Best first."""
        return [int(row) for row in found[0]]


class RankBm25(Searcher):
    """BM25Okapi over words between white space, as LangChain's retriever prepares them."""

    label = "rank_bm25 (LangChain's BM25Retriever), the question's words"
    packages = ("rank-bm25",)
    index = "rank_bm25"
    in_memory = True
    sets = (WORDS,)
    most_passages = 100_000
    reads_texts = True
    has_recall = False

    def load(self) -> None:
        """The module."""
        self._rank_bm25 = peer("rank_bm25", "rank-bm25")

    def open(self) -> None:
        """Index all texts in memory."""
        self.load()
        self._bm25 = self._rank_bm25.BM25Okapi([text.split() for text in self.corpus.texts()])

    def index_bytes(self) -> int:
        """It keeps a dictionary for every passage, of which no size is known; the child's memory tells."""
        return 0

    def take(self, name: str) -> None:
        """The questions' words."""
        self._words = [question.split() for question in self.corpus.questions[:N_QUERIES]]

    def search(self, i: int) -> Any:
        """One question, as its `get_top_n` does it."""
        return np.argsort(self._bm25.get_scores(self._words[i]))[::-1][:K]

    def rows(self, found: Any) -> Sequence[int]:
        """Best first."""
        return [int(row) for row in found]
