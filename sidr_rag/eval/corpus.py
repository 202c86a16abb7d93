"""A dataset's passages in a store, ready for one search after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder import Encoder
from sidr_rag.engine import SiDR
from sidr_rag.errors import FileReadError, InvalidInputError
from sidr_rag.eval.bm25 import Bm25, StemmedWords, WordPieces
from sidr_rag.eval.costs import MeteredEncoder, Seconds, clocked
from sidr_rag.eval.datasets import Dataset
from sidr_rag.eval.pairs import PairIndex
from sidr_rag.eval.searches import Bm25Search
from sidr_rag.index.bot_index import BotIndex
from sidr_rag.index.folder import Folder
from sidr_rag.index.store import Store
from sidr_rag.options import WeightingChoice, new_settings, resolve_weighting
from sidr_rag.rerank.cache import EmbeddingCache
from sidr_rag.rerank.late import PassageEmbedder
from sidr_rag.search.weighting import idf, weigh_queries
from sidr_rag.types import Passage, SparseVectors

_BLOCK = 1000
_CACHE_BYTES = 1 << 40  # an evaluation keeps every embedding: making one again costs far more than its bytes


class Corpus:
    """Passages, indexed once; what single searches need is made when they first ask for it.

    Args:
        dataset: whose passages.
        encoder: the model.
        folder: for the store and its embeddings. One that an earlier evaluation of the same passages has left is used
            again, embeddings included.
        check_id: called with every passage id before anything is indexed; raises if the id cannot be used.

    Raises:
        FileReadError: if passages are malformed, or two have one id.
        InvalidInputError: if the folder's store holds other passages.

    Attributes:
        n: number of passages.
        indexing: what tokenizing and indexing took; zero for a store that was there.
    """

    def __init__(
        self,
        dataset: Dataset,
        encoder: MeteredEncoder,
        folder: Path,
        weightings: Sequence[WeightingChoice] = ("default",),
        check_id: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.dataset = dataset
        self.encoder = encoder
        self._folder = Folder(folder)
        self._check_id = check_id
        self._open: tuple[WeightingChoice, SiDR, Store] | None = None
        self._bm25: dict[tuple[str, float, float], Bm25] = {}
        self._pairs: dict[str, PairIndex] = {}
        self._contents: list[str] | None = None
        self._ids: list[str] = []
        self.embedder = PassageEmbedder(
            encoder, EmbeddingCache(self._folder.embeddings, encoder.fingerprint, _CACHE_BYTES)
        )
        self.indexing = Seconds()
        try:
            if not self._folder.is_store():
                self._create(weightings)
            if len(self.sidr("default")):
                self._check()
            else:
                _, self.indexing = clocked(lambda: self.any_sidr.add_passages(self._checked()))
            self.n = len(self.any_sidr)
        except BaseException:
            self.close()
            raise

    def sidr(self, weighting: WeightingChoice) -> SiDR:
        """The store with a weighting; asking for another one closes it."""
        if self._open is None or self._open[0] != weighting:
            self._close_store()
            store = Store.open(self._folder.path, self.encoder.tokenizer)
            encoder = cast(Encoder, self.encoder)
            chosen = resolve_weighting(weighting, encoder)
            self._open = (weighting, SiDR(store, encoder, chosen, cache_bytes=_CACHE_BYTES), store)
        return self._open[1]

    @property
    def any_sidr(self) -> SiDR:
        """The store as it is open, for what no weighting matters to."""
        return self._open[1] if self._open is not None else self.sidr("default")

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Passages by id; unknown ids are left out."""
        return {p.id: p for i in range(0, len(ids), _BLOCK) for p in self.any_sidr.get(ids[i : i + _BLOCK])}

    def texts(self, ids: Sequence[str]) -> dict[str, str]:
        """Their texts, without titles."""
        return {i: p.text for i, p in self.passages(ids).items()}

    @property
    def ids(self) -> list[str]:
        """All ids, in the order of the dataset."""
        if not self._ids:
            self._ids = self.any_sidr.ids()
        return self._ids

    @property
    def contents(self) -> list[str]:
        """Title and text of every passage, in memory, in the order of the dataset."""
        if self._contents is None:
            self._contents = [p.content for p in self.dataset.passages()]
        return self._contents

    def weigh(self, choice: WeightingChoice, theta: SparseVectors, own: SparseVectors) -> SparseVectors:
        """What a weighting makes of queries over these passages; see `weigh_queries`."""
        index = self._index(choice)
        weighting = resolve_weighting(choice, cast(Encoder, self.encoder))
        return weigh_queries(theta, own, weighting, index.df, index.n_live)

    def idf(self, choice: WeightingChoice, dims: NDArray[np.int32]) -> NDArray[np.float64]:
        """Inverse document frequencies of dimensions over these passages, f64 like `dims`."""
        index = self._index(choice)
        return idf(index.df[dims], index.n_live)

    def _index(self, choice: WeightingChoice) -> BotIndex:
        self.sidr(choice)
        assert self._open is not None
        return self._open[2].current()

    def bm25(self, search: Bm25Search) -> Bm25:
        """The BM25 index of a search, made once."""
        key = (search.words, search.k1, search.b)
        if key not in self._bm25:
            words = StemmedWords() if search.words == "stemmed" else WordPieces(self.encoder.tokenizer)
            self._bm25[key] = Bm25(self.contents, words, k1=search.k1, b=search.b)
        return self._bm25[key]

    def pair_index(self, representation: str) -> PairIndex:
        """The index of one representation of all passages, made once."""
        if representation not in self._pairs:
            contents = (p.content for p in self.dataset.passages())
            self._pairs[representation] = PairIndex.build(representation, contents, self.encoder, self.embedder)
        return self._pairs[representation]

    def close(self) -> None:
        """Close the store; its folder stays."""
        self._close_store()
        self.embedder.cache.close()

    def __enter__(self) -> Corpus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_store(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _create(self, weightings: Sequence[WeightingChoice]) -> None:
        encoder = cast(Encoder, self.encoder)
        settings = new_settings("default", encoder)
        levels = {n for w in weightings for n in resolve_weighting(w, encoder).levels}
        settings = replace(settings, thresholds=tuple(sorted(levels.union(settings.thresholds))))
        Store.create(self._folder.path, settings, self.encoder.tokenizer).close()

    def _check(self) -> None:
        """Refuse a store of other passages, or in another order: it would give other results."""
        sidr = self.sidr("default")
        stored, n = sidr.ids(), 0
        passages = self._checked()
        while block := list(itertools.islice(passages, _BLOCK)):
            ids = [p.id for p in block]
            kept = sidr.get(ids) if ids == stored[n : n + len(ids)] else []
            if [(p.title, p.text) for p in kept] != [(p.title, p.text) for p in block]:
                raise self._other_passages()
            n += len(ids)
        if n != len(stored):
            raise self._other_passages()

    def _other_passages(self) -> InvalidInputError:
        return InvalidInputError(
            f"store={str(self._folder.path)!r}: holds other passages than {self.dataset.name}; "
            "choose another folder, or delete it"
        )

    def _checked(self) -> Iterator[Passage]:
        seen: set[str] = set()
        for passage in self.dataset.passages():
            self._check_id(passage.id)
            if passage.id in seen:
                raise FileReadError(
                    f"{self.dataset.name}: passage id {passage.id!r} comes more than once; ids must be distinct"
                )
            seen.add(passage.id)
            yield passage
