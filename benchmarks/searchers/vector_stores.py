"""Embedded vector stores with sparse vectors: Qdrant Edge and Milvus Lite, each through its own in-process calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.corpora import Corpus, K
from benchmarks.searchers.base import BatchSearcher, Searcher, folder_bytes, peer

_UPSERTED_AT_ONCE = 1_000
_FIELD = "tokens"


class QdrantEdge(BatchSearcher):
    """An in-process Qdrant shard: its inverted index over sparse vectors, one search thread, no write-ahead log."""

    label = "qdrant-edge, sparse vectors"
    packages = ("qdrant-edge-py",)
    index = "qdrant"

    def load(self) -> None:
        """The module."""
        self._edge = peer("qdrant_edge", "qdrant-edge-py")

    def build(self) -> None:
        """Upserts of 1,000 points, then its optimizer until nothing is left to do."""
        self.load()
        self.folder.mkdir(parents=True, exist_ok=True)
        edge = self._edge
        config = edge.EdgeConfig(
            sparse_vectors={_FIELD: edge.EdgeSparseVectorParams()}, max_search_threads=1, wal_enabled=False
        )
        shard = edge.EdgeShard.create(str(self.folder), config)
        for first, bags in _batches(self.corpus):
            points = [
                edge.Point(first + i, {_FIELD: edge.SparseVector(bag, [1.0] * len(bag))})
                for i, bag in enumerate(bags)
                if bag
            ]
            shard.update(edge.UpdateOperation.upsert_points(points))
        shard.optimize()
        shard.flush()
        shard.close()

    def open(self) -> None:
        """Load the shard."""
        self.load()
        self._shard = self._edge.EdgeShard.load(str(self.folder))

    def index_bytes(self) -> int:
        """All files: stored vectors and index."""
        return folder_bytes(self.folder)

    def take(self, name: str) -> None:
        """Requests are made before the clock starts."""
        edge = self._edge
        self._requests = [
            edge.QueryRequest(
                limit=K, query=edge.Query.Nearest(edge.SparseVector(dims.tolist(), weights.tolist()), using=_FIELD)
            )
            for dims, weights in self.corpus.vectors(name)
        ]
        self._batch = edge.QueryBatchRequest(self._requests)

    def search(self, i: int) -> Any:
        """One request."""
        return self._shard.query(self._requests[i])

    def search_all(self) -> Any:
        """All as one batch."""
        return self._shard.query_batch(self._batch)

    def rows(self, found: Any) -> Sequence[int]:
        """Point ids."""
        return [int(point.id) for point in found]


class MilvusLite(Searcher):
    """The embedded engine, which is Python throughout: exact sparse inner products."""

    label = "milvus-lite, sparse vectors"
    packages = ("milvus-lite",)
    index = "milvus"
    most_passages = 100_000

    def load(self) -> None:
        """The module."""
        self._milvus = peer("milvus_lite", "milvus-lite")

    def build(self) -> None:
        """Inserts of 1,000 rows, then the index."""
        self.load()
        milvus = self._milvus
        fields = [
            milvus.FieldSchema(name="id", dtype=milvus.DataType.INT64, is_primary=True),
            milvus.FieldSchema(name=_FIELD, dtype=milvus.DataType.SPARSE_FLOAT_VECTOR),
        ]
        with milvus.MilvusLite(str(self.folder)) as database:
            rows = database.create_collection("passages", milvus.CollectionSchema(fields=fields))
            for first, bags in _batches(self.corpus):
                rows.insert([{"id": first + i, _FIELD: dict.fromkeys(bag, 1.0)} for i, bag in enumerate(bags) if bag])
            rows.flush()
            rows.create_index(_FIELD, {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP", "params": {}})
            rows.load()

    def open(self) -> None:
        """Load the collection."""
        self.load()
        self._database = self._milvus.MilvusLite(str(self.folder))
        self._rows = self._database.get_collection("passages")
        self._rows.load()

    def index_bytes(self) -> int:
        """All files: stored vectors and index."""
        return folder_bytes(self.folder)

    def take(self, name: str) -> None:
        """Mappings from dimension to weight."""
        self._queries = [
            dict(zip(dims.tolist(), weights.tolist(), strict=True)) for dims, weights in self.corpus.vectors(name)
        ]

    def search(self, i: int) -> Any:
        """One query; ids alone come back."""
        return self._rows.search([self._queries[i]], top_k=K, metric_type="IP", anns_field=_FIELD, output_fields=["id"])

    def rows(self, found: Any) -> Sequence[int]:
        """Primary keys."""
        return [int(hit["id"]) for hit in found[0]]


def _batches(corpus: Corpus) -> Iterator[tuple[int, list[list[int]]]]:
    dims, indptr = np.asarray(corpus.dims), corpus.indptr
    for first in range(0, len(corpus), _UPSERTED_AT_ONCE):
        ends = indptr[first : first + _UPSERTED_AT_ONCE + 1]
        yield first, [dims[a:b].tolist() for a, b in itertools.pairwise(ends)]
