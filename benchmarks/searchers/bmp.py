"""BMP: block-max pruning over integer weights, with its exact settings (alpha = beta = 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.corpora import K
from benchmarks.searchers.base import Searcher, peer


class Bmp(Searcher):
    """Blocks of 32; it rounds query weights to integers, so even alpha = beta = 1 is not exact for ours."""

    label = "bmp, alpha = beta = 1"
    packages = ("bmp",)
    index = "bmp"
    exact = False

    def load(self) -> None:
        """The module."""
        self._bmp = peer("bmp", "bmp")

    def build(self) -> None:
        """One passage at a time, in the order given."""
        self.load()
        self.folder.mkdir(parents=True, exist_ok=True)
        indexer = self._bmp.Indexer(str(self.folder / "index.bmp"), bsize=32, compress_range=False)
        names = [str(d) for d in range(self.corpus.dim)]
        dims, indptr = np.asarray(self.corpus.dims), self.corpus.indptr
        for i in range(len(self.corpus)):
            indexer.add_document(str(i), {names[d]: 1 for d in dims[indptr[i] : indptr[i + 1]].tolist()})
        indexer.finish()

    def open(self) -> None:
        """Load it into memory."""
        self.load()
        self._searcher = self._bmp.Searcher(str(self.folder / "index.bmp"))

    def index_bytes(self) -> int:
        """The file."""
        return (self.folder / "index.bmp").stat().st_size

    def take(self, name: str) -> None:
        """Mappings from token to weight."""
        self._queries = [
            dict(zip(map(str, dims.tolist()), weights.tolist(), strict=True))
            for dims, weights in self.corpus.vectors(name)
        ]

    def search(self, i: int) -> Any:
        """One query."""
        return self._searcher.search(self._queries[i], k=K, alpha=1.0, beta=1.0)

    def rows(self, found: Any) -> Sequence[int]:
        """From names."""
        return [int(name) for name in found[0]]
