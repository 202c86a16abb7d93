"""`SiDR` on a collection of a search engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from sidr_rag.backends.records import index_of
from sidr_rag.backends.remote_pipeline import RemotePipeline
from sidr_rag.backends.remote_store import RemoteStore
from sidr_rag.encoder import Encoder
from sidr_rag.engine import SiDR
from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.explain import Explanation, explain_beta
from sidr_rag.index.store import Store
from sidr_rag.inputs import as_count, ids_list
from sidr_rag.request import Request
from sidr_rag.rerank.cache import EmbeddingCache
from sidr_rag.rerank.codecs import weight_codec
from sidr_rag.rerank.late import PassageEmbedder
from sidr_rag.rerank.queries import Queries
from sidr_rag.search.filters import parse_filter
from sidr_rag.search.searcher import SearchPool
from sidr_rag.search.weighting import BINARY, Weighting
from sidr_rag.types import Passage


class RemoteSiDR(SiDR):
    """A `SiDR` whose passages live in a collection of a search engine; see `open_backend`.

    Results, scores, filters, ids and explanations are the local engine's. What differs: a call is stored block by
    block, not all or nothing; full and alpha search are refused; `save` writes a local store.
    """

    def __init__(
        self,
        store: RemoteStore,
        encoder: Encoder,
        weighting: Weighting,
        *,
        num_threads: int | None = None,
        cache_bytes: int = 1 << 30,
        embedding_precision: str = "float16",
    ) -> None:
        lacking = [n for n in weighting.levels if n not in store.settings.thresholds]
        if lacking:
            raise InvalidInputError(
                f"weighting needs levels {list(weighting.levels)}, but this collection keeps "
                f"{list(store.settings.thresholds)}; make a new one with weighting='default'"
            )
        cache = EmbeddingCache(None, encoder.fingerprint, cache_bytes, weight_codec(embedding_precision))
        shared: Any = store
        self._store = shared
        self._remote = store
        self._encoder = encoder
        self._pool = SearchPool(num_threads)
        self._pipeline = RemotePipeline(store, encoder, PassageEmbedder(encoder, cache), weighting, self._pool)
        self._arguments = {}

    def get(self, ids: Iterable[str]) -> list[Passage]:
        """Passages by id, in the order asked for; missing ids are left out."""
        wanted = ids_list(ids)
        rows = self._remote.rows(wanted)
        return [rows[i].passage() for i in wanted if i in rows]

    def __len__(self) -> int:
        return self._remote.count()

    def refresh(self) -> int:
        """Read other writers' statistics now; returns the number of passages."""
        self._remote.ledger.look()
        return len(self)

    def recount(self) -> int:
        """Count the collection's statistics anew; see `RemoteStore.recount`."""
        return self._remote.recount()

    def _explain_beta(self, asked: Queries, passage_id: str, request: Request) -> Explanation:
        record = next(iter(self._remote.records([passage_id]).values()), None)
        if record is None:
            raise InvalidInputError(f"passage_id={passage_id!r}: no such passage")
        sums, settings = self._remote.statistics(), self._remote.settings
        index = index_of([record], settings.thresholds, settings.dim, (sums.df, sums.passages, sums.length))
        weighting, weights = self._pipeline.weighting, asked.bags
        if request.first_stage == "overlap":
            weighting = BINARY
        else:
            weights = self._pipeline.first.weighed(asked.searched, asked.bags, index, request.weight_floor)
        vocabulary = self._encoder.tokenizer.vocabulary
        return explain_beta(passage_id, index.views[0], 0, weights, asked.bags, weighting, index, vocabulary)

    def list_passages(
        self, *, filter: Mapping[str, Any] | None = None, limit: int | None = None, without: Collection[str] = ()
    ) -> list[Passage]:
        """The passages that match a filter, oldest first; see `sidr_rag.listing.list_passages`."""
        condition = parse_filter(filter)
        wanted = None if limit is None else as_count("limit", limit)
        found: list[Passage] = []
        if wanted == 0:
            return found
        for row in self._remote.scan(condition):
            passage = row.passage()
            if row.id not in without and (condition is None or condition.matches(passage.metadata)):
                found.append(passage)
                if len(found) == wanted:
                    break
        return found

    @property
    def path(self) -> Path | None:
        """None: the passages are in no folder."""
        return None

    def save(self, path: str | Path) -> None:
        """Write a local store with the same passages in the same order, in a new or empty folder.

        Passages that are added or deleted meanwhile may be in it or not.
        """
        store = Store.create(Path(path), self._remote.settings, self._remote.tokenizer)
        try:
            store.add(self._remote.scan())
        finally:
            store.close()

    def compact(self, purge: bool = False) -> None:
        """Nothing: engines merge by themselves."""

    def info(self) -> dict[str, Any]:
        """Facts about the collection, for people."""
        sums = self._remote.statistics()
        return {
            "passages": len(self),
            "counted": sums.passages,
            "tokens": sums.length,
            "levels": list(self._remote.settings.thresholds),
            "engine": self._remote.backend.name,
            "path": self._remote.backend.place,
            "writer": self._remote.ledger.writer,
            "model": self._encoder.config.name,
            "tokenizer": self._remote.settings.fingerprint,
            "encoder": self._encoder.fingerprint,
            "weighting": self._pipeline.weighting.to_mapping(),
        }

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidTypeError("a SiDR on a search engine cannot be pickled; pickle its URL, and open it again")

    def __repr__(self) -> str:
        return f"RemoteSiDR({self._remote.backend.place}, model {self._encoder.config.name!r})"
