"""Seismic: approximate search of learned sparse vectors, tuned to a recall of 0.95 on the very queries measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.corpora import N_QUERIES, K
from benchmarks.searchers.base import BatchSearcher, peer

RECALL = 0.95
_CUTS = (4, 6, 8, 10, 15, 20, 30, 50, 100, 200)
_FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6)
_ROUNDS = 2


class Seismic(BatchSearcher):
    """Built with its defaults; of `query_cut` and `heap_factor` the fastest pair that reaches the recall."""

    label = "seismic, tuned to recall 0.95"
    packages = ("pyseismic-lsr",)
    index = "seismic"
    exact = False

    def load(self) -> None:
        """The module."""
        self._seismic = peer("seismic", "pyseismic-lsr")

    def build(self) -> None:
        """All bags at once, one thread."""
        self.load()
        corpus = self.corpus
        data = self._seismic.SeismicDataset(dim=corpus.dim)
        dims = np.asarray(corpus.dims).astype(np.int64)
        data.add_documents_by_id(
            [str(i) for i in range(len(corpus))], dims, np.ones(len(dims), np.float32), corpus.indptr
        )
        index = self._seismic.SeismicIndex.build_from_dataset(data, num_threads=1)
        self.folder.mkdir(parents=True, exist_ok=True)
        index.save(str(self.folder / "index"))

    def open(self) -> None:
        """Load it into memory."""
        self.load()
        (self._file,) = self.folder.glob("index*")
        self._index = self._seismic.SeismicIndex.load(str(self._file))

    def index_bytes(self) -> int:
        """The file."""
        return self._file.stat().st_size

    def take(self, name: str) -> None:
        """Tokens as strings, strongest first; settings chosen with the tuning queries."""
        self._queries = self._given(name)
        tried: list[tuple[float, float, int, float]] = []
        for cut in _CUTS:
            for factor in _FACTORS:
                times = []
                for _ in range(_ROUNDS):
                    start = time.process_time()
                    found = [self._found(query, cut, factor) for query in self._queries]
                    times.append(time.process_time() - start)
                recalls = [self.corpus.recall(name, i, self.rows(f)) for i, f in enumerate(found)]
                tried.append((float(np.mean(recalls)), min(times), cut, factor))
        good = [t for t in tried if t[0] >= RECALL] or [max(tried)]
        _, _, self._cut, self._factor = min(good, key=lambda t: t[1])
        self._settings = f"query_cut {self._cut}, heap_factor {self._factor} "

    def _given(self, name: str) -> list[tuple[Any, Any]]:
        strings = self._seismic.get_seismic_string()
        return [(dims.astype(strings), weights) for dims, weights in self.corpus.vectors(name)]

    def _found(self, query: tuple[Any, Any], cut: int, factor: float) -> Any:
        return self._index.search("q", *query, k=K, query_cut=cut, heap_factor=factor)

    def search(self, i: int) -> Any:
        """One query."""
        return self._found(self._queries[i], self._cut, self._factor)

    def search_all(self) -> Any:
        """All in one call, one thread."""
        names = np.array([str(i) for i in range(N_QUERIES)], dtype=self._seismic.get_seismic_string())
        return self._index.batch_search(
            names,
            [dims for dims, _ in self._queries],
            [weights for _, weights in self._queries],
            k=K,
            query_cut=self._cut,
            heap_factor=self._factor,
            num_threads=1,
        )

    def rows(self, found: Any) -> Sequence[int]:
        """From names."""
        return [int(name) for _, _, name in found]

    def settings(self) -> str:
        """The chosen pair."""
        return self._settings
