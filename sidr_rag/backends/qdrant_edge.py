"""Qdrant's engine inside this process, through qdrant-edge-py: the server's own index, without a server."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sidr_rag.backends.protocol import Candidate, Head, PartRange, Query, Record
from sidr_rag.backends.pushing import Between, Joined, Pushed, pushed
from sidr_rag.backends.qdrant import VECTOR, payload_of, record_of
from sidr_rag.backends.wire import from_wire, key_of
from sidr_rag.errors import MissingExtraError, StorageError
from sidr_rag.search.filters import Filter

_AT_ONCE = 1000


class QdrantEdgeBackend:
    """Two shards in a folder: the passages and the notes. One process uses it at a time.

    Args:
        folder: for both; made by `create`.
    """

    name = "qdrant-edge"
    most_candidates = 8192
    parallel_writes = 1

    def __init__(self, folder: Path) -> None:
        self._edge = _edge()
        self._folder = folder
        self._lock = threading.Lock()
        self._shards: dict[str, Any] = {}
        self.place = f"qdrant-edge://{folder}"

    def exists(self) -> bool:
        """See `IndexBackend`."""
        return (self._folder / "notes").is_dir()

    def create(self) -> None:
        """See `IndexBackend`."""
        e = self._edge
        with self._errors(), self._lock:
            for name in ("passages", "notes"):
                (self._folder / name).mkdir(parents=True, exist_ok=True)
                config = e.EdgeConfig(sparse_vectors={VECTOR: e.EdgeSparseVectorParams()})
                self._shards[name] = e.EdgeShard.create(str(self._folder / name), config)

    def drop(self) -> None:
        """See `IndexBackend`."""
        self.close()
        for name in ("passages", "notes"):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def count(self) -> int:
        """See `IndexBackend`."""
        with self._errors():
            return int(self._shard("passages").count(self._edge.CountRequest(exact=True)))

    def upsert(self, records: Sequence[Record]) -> None:
        """See `IndexBackend`."""
        e = self._edge
        points = [
            e.Point(
                r.key,
                {VECTOR: e.SparseVector(indices=r.dims.tolist(), values=[r.value] * len(r.dims))},
                payload_of(r),
            )
            for r in records
        ]
        self._update("passages", e.UpdateOperation.upsert_points(points))

    def delete(self, keys: Sequence[str]) -> None:
        """See `IndexBackend`."""
        self._update("passages", self._edge.UpdateOperation.delete_points(list(keys)))

    def fetch(self, keys: Sequence[str]) -> dict[str, Record]:
        """See `IndexBackend`."""
        with self._errors():
            points = self._shard("passages").retrieve(list(keys), with_payload=True, with_vector=True) if keys else []
        return {str(p.id): record_of(str(p.id), p.payload, p.vector) for p in points}

    def search(
        self, queries: Sequence[Query], limit: int, condition: Filter | None, parts: PartRange | None
    ) -> list[list[Candidate]]:
        """See `IndexBackend`."""
        e = self._edge
        wanted = self._filter(_pushed(condition), parts)
        answers = []
        for query in queries:
            vector = e.SparseVector(indices=query.dims.tolist(), values=query.weights.tolist())
            request = e.QueryRequest(
                limit=limit,
                query=e.Query.Nearest(vector, using=VECTOR),
                with_vector=True,
                with_payload=True,
                filter=wanted,
            )
            with self._errors():
                points = self._shard("passages").query(request)
            answers.append([Candidate(record_of(str(p.id), p.payload, p.vector), float(p.score)) for p in points])
        return answers

    def heads(self, condition: Filter | None = None) -> Iterator[Head]:
        """See `IndexBackend`."""
        for point in self._scroll("passages", self._filter(_pushed(condition), None)):
            yield Head(str(point.id), int(point.payload["seq"]), from_wire(point.payload["passage_id"]))

    def notes(self, kind: str) -> dict[str, str]:
        """See `IndexBackend`."""
        if not self.exists():
            return {}
        e = self._edge
        wanted = e.Filter(must=[e.FieldCondition("kind", match=e.MatchValue(kind))])
        return {point.payload["name"]: point.payload["text"] for point in self._scroll("notes", wanted)}

    def put_notes(self, kind: str, notes: Mapping[str, str]) -> None:
        """See `IndexBackend`."""
        points = [
            self._edge.Point(key_of(f"{kind}\n{name}"), {}, {"kind": kind, "name": name, "text": text})
            for name, text in notes.items()
        ]
        self._update("notes", self._edge.UpdateOperation.upsert_points(points))

    def close(self) -> None:
        """See `IndexBackend`."""
        with self._errors(), self._lock:
            for shard in self._shards.values():
                shard.close()
            self._shards.clear()

    def optimize(self) -> None:
        """Build the index of what was added, as a server does in the background."""
        with self._errors():
            self._shard("passages").optimize()

    # Inside

    def _shard(self, name: str) -> Any:
        with self._lock:
            if name not in self._shards:
                self._shards[name] = self._edge.EdgeShard.load(str(self._folder / name))
            return self._shards[name]

    def _update(self, name: str, operation: Any) -> None:
        with self._errors():
            shard = self._shard(name)
            shard.update(operation)
            shard.flush()

    def _scroll(self, name: str, wanted: Any) -> Iterator[Any]:
        offset = None
        while True:
            request = self._edge.ScrollRequest(offset=offset, limit=_AT_ONCE, filter=wanted, with_payload=True)
            with self._errors():
                points, offset = self._shard(name).scroll(request)
            yield from points
            if offset is None:
                return

    def _filter(self, condition: Pushed | None, parts: PartRange | None) -> Any:
        e = self._edge
        must = [] if condition is None else [self._condition(condition)]
        if parts is not None:
            must.append(e.FieldCondition("part", range=e.RangeFloat(gte=parts.first, lte=parts.last)))
        return e.Filter(must=must) if must else None

    def _condition(self, condition: Pushed) -> Any:
        e = self._edge
        if isinstance(condition, Joined):
            parts = [self._condition(part) for part in condition.parts]
            return e.Filter(must=parts) if condition.by == "and" else e.Filter(should=parts)
        key = ".".join(("metadata", *condition.path))
        if isinstance(condition, Between):
            return e.FieldCondition(key, range=e.RangeFloat(gte=condition.least, lte=condition.most))
        return e.FieldCondition(key, match=e.MatchAny(list(condition.values)))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """The engine's own errors as a `StorageError`; their messages may hold payloads, so only the type is told."""
        try:
            yield
        except (StorageError, MissingExtraError):
            raise
        except Exception as error:
            raise StorageError(f"{self.place}: the engine refused ({type(error).__name__})") from error


def _pushed(condition: Filter | None) -> Pushed | None:
    # Its Python binding takes True for the integer 1 in a condition.
    return pushed(condition, booleans=False)


def _edge() -> Any:
    try:
        import qdrant_edge
    except ImportError as e:
        raise MissingExtraError("qdrant-edge-py", "qdrant-edge", "a Qdrant Edge folder") from e
    return qdrant_edge
