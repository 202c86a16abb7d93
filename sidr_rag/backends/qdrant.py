"""Qdrant: a collection on a server, in a cluster, or in qdrant-client's own local mode."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sidr_rag.backends.protocol import Candidate, Head, PartRange, Query, Record, filterable
from sidr_rag.backends.pushing import Between, HasAny, Joined, Pushed, pushed
from sidr_rag.backends.wire import from_wire, key_of, to_wire
from sidr_rag.errors import IndexFormatError, MissingExtraError, StorageError
from sidr_rag.index.passages import Row, metadata_of
from sidr_rag.search.filters import Filter

VECTOR = "bag"
_AT_ONCE = 1000
_HEAD_FIELDS = ["seq", "passage_id"]


class QdrantBackend:
    """A collection reached through a `qdrant_client.QdrantClient`.

    Sparse vectors lie in the index as float32 without quantization, so that Qdrant's search, which skips only what
    cannot reach the k-th score, is exact. Writes wait until they are applied.

    Args:
        client: a `QdrantClient`.
        collection: its name; `<collection>_notes` is used beside it.
        owned: whether `close` closes the client.
        create_arguments: handed to `create_collection`: `shard_number`, `replication_factor` and the like.
        place: for people.
    """

    name = "qdrant"
    most_candidates = 8192

    def __init__(
        self,
        client: Any,
        collection: str,
        *,
        owned: bool = False,
        create_arguments: Mapping[str, Any] | None = None,
        place: str | None = None,
    ) -> None:
        self._client = client
        self._models = _models()
        self._collection = collection
        self._notes = f"{collection}_notes"
        self._owned = owned
        local = type(client._client).__name__ == "QdrantLocal"
        self._is_local = local
        # The local mode is Python over one SQLite connection: calls take turns.
        self._turns: contextlib.AbstractContextManager[Any] = threading.RLock() if local else contextlib.nullcontext()
        self.parallel_writes = 1 if local else 4
        self._create_arguments = dict(create_arguments or {})
        self.place = place or f"qdrant collection {collection!r}"

    def exists(self) -> bool:
        """See `IndexBackend`."""
        with self._errors():
            return bool(self._client.collection_exists(self._collection))

    def create(self) -> None:
        """See `IndexBackend`."""
        m = self._models
        vector = m.SparseVectorParams(index=m.SparseIndexParams(on_disk=False, datatype=m.Datatype.FLOAT32))
        with self._errors():
            self._client.create_collection(
                self._collection, vectors_config={}, sparse_vectors_config={VECTOR: vector}, **self._create_arguments
            )
            if not self._client.collection_exists(self._notes):
                self._client.create_collection(self._notes, vectors_config={})
            if not self._is_local:
                self._client.create_payload_index(self._collection, "part", m.PayloadSchemaType.INTEGER, wait=True)
                self._client.create_payload_index(self._notes, "kind", m.PayloadSchemaType.KEYWORD, wait=True)

    def drop(self) -> None:
        """See `IndexBackend`."""
        with self._errors():
            for name in (self._collection, self._notes):
                if self._client.collection_exists(name):
                    self._client.delete_collection(name)

    def count(self) -> int:
        """See `IndexBackend`."""
        with self._errors():
            return int(self._client.count(self._collection, exact=True).count)

    def upsert(self, records: Sequence[Record]) -> None:
        """See `IndexBackend`."""
        m = self._models
        points = [
            m.PointStruct(
                id=r.key,
                vector={VECTOR: m.SparseVector(indices=r.dims.tolist(), values=[r.value] * len(r.dims))},
                payload=payload_of(r),
            )
            for r in records
        ]
        with self._errors():
            self._client.upsert(self._collection, points=points, wait=True)

    def delete(self, keys: Sequence[str]) -> None:
        """See `IndexBackend`."""
        with self._errors():
            selector = self._models.PointIdsList(points=list(keys))
            self._client.delete(self._collection, points_selector=selector, wait=True)

    def fetch(self, keys: Sequence[str]) -> dict[str, Record]:
        """See `IndexBackend`."""
        found: dict[str, Record] = {}
        for i in range(0, len(keys), _AT_ONCE):
            with self._errors():
                points = self._client.retrieve(
                    self._collection, ids=list(keys[i : i + _AT_ONCE]), with_payload=True, with_vectors=[VECTOR]
                )
            found.update((str(p.id), record_of(str(p.id), p.payload, p.vector)) for p in points)
        return found

    def search(
        self, queries: Sequence[Query], limit: int, condition: Filter | None, parts: PartRange | None
    ) -> list[list[Candidate]]:
        """See `IndexBackend`."""
        m = self._models
        wanted = self._filter(pushed(condition), parts)
        requests = [
            m.QueryRequest(
                query=m.SparseVector(indices=q.dims.tolist(), values=q.weights.tolist()),
                using=VECTOR,
                limit=limit,
                filter=wanted,
                with_payload=True,
                with_vector=[VECTOR],
            )
            for q in queries
        ]
        with self._errors():
            answers = self._client.query_batch_points(self._collection, requests=requests)
        return [
            [Candidate(record_of(str(p.id), p.payload, p.vector), float(p.score)) for p in answer.points]
            for answer in answers
        ]

    def heads(self, condition: Filter | None = None) -> Iterator[Head]:
        """See `IndexBackend`."""
        wanted = self._filter(pushed(condition), None)
        for point in self._scroll(self._collection, wanted, _HEAD_FIELDS):
            yield Head(str(point.id), int(point.payload["seq"]), from_wire(point.payload["passage_id"]))

    def notes(self, kind: str) -> dict[str, str]:
        """See `IndexBackend`."""
        m = self._models
        with self._errors():
            if not self._client.collection_exists(self._notes):
                return {}
        wanted = m.Filter(must=[m.FieldCondition(key="kind", match=m.MatchValue(value=kind))])
        points = self._scroll(self._notes, wanted, True)
        return {point.payload["name"]: point.payload["text"] for point in points}

    def put_notes(self, kind: str, notes: Mapping[str, str]) -> None:
        """See `IndexBackend`."""
        points = [
            self._models.PointStruct(
                id=key_of(f"{kind}\n{name}"), vector={}, payload={"kind": kind, "name": name, "text": text}
            )
            for name, text in notes.items()
        ]
        with self._errors():
            self._client.upsert(self._notes, points=points, wait=True)

    def close(self) -> None:
        """See `IndexBackend`."""
        if self._owned:
            self._client.close()

    # Inside

    def _scroll(self, collection: str, wanted: Any, payload: Any) -> Iterator[Any]:
        offset = None
        while True:
            with self._errors():
                points, offset = self._client.scroll(
                    collection, scroll_filter=wanted, limit=_AT_ONCE, offset=offset, with_payload=payload
                )
            yield from points
            if offset is None:
                return

    def _filter(self, condition: Pushed | None, parts: PartRange | None) -> Any:
        m = self._models
        must = [] if condition is None else [self._condition(condition)]
        if parts is not None:
            must.append(m.FieldCondition(key="part", range=m.Range(gte=parts.first, lte=parts.last)))
        return m.Filter(must=must) if must else None

    def _condition(self, condition: Pushed) -> Any:
        m = self._models
        if isinstance(condition, Joined):
            parts = [self._condition(part) for part in condition.parts]
            return m.Filter(must=parts) if condition.by == "and" else m.Filter(should=parts)
        key = ".".join(("metadata", *condition.path))
        if isinstance(condition, Between):
            return m.FieldCondition(key=key, range=m.Range(gte=condition.least, lte=condition.most))
        if isinstance(condition, HasAny) or all(isinstance(v, str) for v in condition.values):
            return m.FieldCondition(key=key, match=m.MatchAny(any=list(condition.values)))
        return m.Filter(should=[m.FieldCondition(key=key, match=m.MatchValue(value=v)) for v in condition.values])

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """An engine's own errors as a `StorageError`; their messages may hold payloads, so only the type is told."""
        try:
            with self._turns:
                yield
        except (OSError, ValueError, RuntimeError) as e:
            raise self._error(e) from None
        except Exception as e:
            if type(e).__module__.split(".")[0] not in ("qdrant_client", "grpc", "httpx", "pydantic"):
                raise
            raise self._error(e) from None

    def _error(self, e: Exception) -> StorageError:
        status = getattr(e, "status_code", None)
        detail = type(e).__name__ if status is None else f"{type(e).__name__}, status {status}"
        return StorageError(f"{self.place}: the engine refused or did not answer ({detail})")


def payload_of(record: Record) -> dict[str, Any]:
    """What a point keeps beside its vector; text, title and id stand there as other programs expect them."""
    row = record.row
    payload: dict[str, Any] = {
        "passage_id": to_wire(row.id),
        "seq": row.seq,
        "part": record.part,
        "length": record.length,
        "text": to_wire(row.text),
        "source_metadata": to_wire(row.metadata),
        "metadata": filterable(metadata_of(row.metadata)),
    }
    if row.title is not None:
        payload["title"] = to_wire(row.title)
    return payload


def record_of(key: str, payload: Any, vector: Any) -> Record:
    """A point as a record.

    Raises:
        IndexFormatError: if another program has put it there.
    """
    try:
        bag = vector[VECTOR]
        title = payload.get("title")
        row = Row(
            int(payload["seq"]),
            from_wire(payload["passage_id"]),
            None if title is None else from_wire(title),
            from_wire(payload["text"]),
            from_wire(payload["source_metadata"]),
        )
        dims = np.sort(np.asarray(bag.indices, dtype=np.int64))
        return Record(key, row, int(payload["length"]), dims, float(bag.values[0]))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as e:
        raise IndexFormatError(f"point {key}: is no passage of this library ({type(e).__name__})") from e


def _models() -> Any:
    try:
        from qdrant_client import models
    except ImportError as e:
        raise MissingExtraError("qdrant-client", "qdrant", "a Qdrant collection") from e
    return models
