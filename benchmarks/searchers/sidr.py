"""This library: through its two public calls, and the search of one state alone, with one level and with three."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from benchmarks.corpora import K
from benchmarks.searchers.base import WORDS, BatchSearcher
from sidr_rag import SiDR
from sidr_rag.types import SparseVectors

_ADDED_AT_ONCE = 50_000
_QUERY_TEXT = "How long may it take?"


def row_id(i: int) -> str:
    """The id of passage i."""
    return f"p{i}"


class SidrVectors(BatchSearcher):
    """`SiDR.search_vectors`: the paper's beta search of a vector, ids fetched from the store."""

    label = "sidr: SiDR.search_vectors"
    packages = ("sidr-rag", "numpy", "numba", "tokenizers")
    index = "sidr"
    reads_texts = True

    _sidr: SiDR
    _vectors: list[SparseVectors]
    _together: SparseVectors

    def load(self) -> None:
        """The model, and compiled kernels."""
        from sidr_rag.search import warm_up

        SiDR.from_texts(["a text"]).search(_QUERY_TEXT)
        warm_up(wait=True)

    def build(self) -> None:
        """One store in a folder, merged."""
        with SiDR.open(self.folder / "store", create=True) as sidr:
            first = 0
            for block in _blocks(self.corpus.texts()):
                sidr.add(block, ids=[row_id(i) for i in range(first, first + len(block))])
                first += len(block)
            sidr._store.wait()

    def open(self) -> None:
        """Open it for reading, with one thread; the kernel is the library's choice."""
        self._sidr = SiDR.open(self.folder / "store", read_only=True, num_threads=1)

    def index_bytes(self) -> int:
        """Of the segment files: all levels, without texts."""
        return sum(p.stat().st_size for p in (self.folder / "store" / "segments").iterdir())

    def take(self, name: str) -> None:
        """One row for each query."""
        self._together = self.corpus.vectors(name)
        self._vectors = [SparseVectors.from_rows([row], self._together.dim) for row in self._together]

    def search(self, i: int) -> Any:
        """One vector."""
        return self._sidr.search_vectors(self._vectors[i], K)

    def search_all(self) -> Any:
        """All vectors in one call."""
        return self._sidr.search_vectors(self._together, K)

    def rows(self, found: Any) -> Sequence[int]:
        """From ids."""
        return [int(name[1:]) for name in found.ids[0]]


class SidrSearch(SidrVectors):
    """`SiDR.search`: a question's text in, passages out, the model's own weighting."""

    label = "sidr: SiDR.search (question encoded, three levels, texts fetched)"
    sets = (WORDS,)
    has_recall = False

    def take(self, name: str) -> None:
        """The questions as they were asked."""
        super().take(name)
        self._asked = self.corpus.questions[: len(self._vectors)]

    def search(self, i: int) -> Any:
        """One question."""
        return self._sidr.search(self._asked[i], k=K)

    def search_all(self) -> Any:
        """All questions in one call."""
        return self._sidr.search(self._asked, k=K)

    def rows(self, found: Any) -> Sequence[int]:
        """From ids."""
        return [int(result.passage.id[1:]) for result in found]


class SidrEncode(SidrSearch):
    """The encoder alone, to be taken off the row above."""

    label = "sidr: encoding the question alone"

    def search(self, i: int) -> Any:
        """One question."""
        return self._sidr.encode_queries([self._asked[i]])

    def search_all(self) -> Any:
        """All questions in one call."""
        return self._sidr.encode_queries(self._asked)

    def rows(self, found: Any) -> Sequence[int]:
        """It finds nothing."""
        return []


class SidrOneLevel(SidrVectors):
    """The search of one state: scores and positions, no passage fetched."""

    label = "sidr: search alone, one level"
    levels: ClassVar[tuple[int, ...]] = (1,)

    def open(self) -> None:
        """Hold the state."""
        from sidr_rag.search.searcher import SearchPool
        from sidr_rag.search.weighting import Weighting

        super().open()
        self._state = self._sidr._store.current()
        self._weighting = Weighting(self.levels, (1.0, 0.35, 0.25)[: len(self.levels)])
        self._pool = SearchPool(1)

    def search(self, i: int) -> Any:
        """One vector."""
        return self._found(self._vectors[i])

    def search_all(self) -> Any:
        """All vectors in one call."""
        return self._found(self._together)

    def _found(self, vectors: SparseVectors) -> Any:
        from sidr_rag.search.searcher import search_index

        return search_index(self._state, vectors, self._weighting, K, pool=self._pool)

    def rows(self, found: Any) -> Sequence[int]:
        """Passages were added in order, so their seqs count from 1."""
        return [int(seq) - 1 for seq in found[0][0]]


class SidrThreeLevels(SidrOneLevel):
    """The same with the default's three levels, without idf and length."""

    label = "sidr: search alone, three levels"
    levels = (1, 2, 4)
    has_recall = False


def _blocks(texts: Iterator[str]) -> Iterator[list[str]]:
    while block := list(itertools.islice(texts, _ADDED_AT_ONCE)):
        yield block
