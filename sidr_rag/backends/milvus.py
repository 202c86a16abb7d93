"""Milvus: a collection on a server, in a cluster, or in a file of Milvus Lite."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sidr_rag.backends.protocol import Candidate, Head, PartRange, Query, Record, filterable
from sidr_rag.backends.pushing import Between, HasAny, Joined, Pushed, pushed
from sidr_rag.backends.wire import from_wire, key_of, to_wire
from sidr_rag.errors import IndexFormatError, InvalidInputError, MissingExtraError, StorageError
from sidr_rag.index.passages import Row, metadata_of
from sidr_rag.search.filters import Filter

_AT_ONCE = 1000
_FIELD_BYTES = 65_535
_FIELDS = ["key", "seq", "length", "passage_id", "title", "text", "source_metadata", "bag"]
_NO_TITLE = "\x01none"
# Nothing is dropped and nothing pruned that could be found.
_EXACT_SEARCH = {"metric_type": "IP", "params": {"drop_ratio_search": 0.0}}


class MilvusBackend:
    """A collection reached through a `pymilvus.MilvusClient`.

    The sparse index drops nothing, neither when it is built nor when it is searched, and every read asks for the
    consistency level "Strong": it sees all that was written before it began.

    Args:
        client: a `MilvusClient`.
        collection: its name; `<collection>_notes` is used beside it.
        owned: whether `close` closes the client.
        create_arguments: handed to `create_collection`: `num_shards`, `num_partitions` and the like.
        place: for people.
    """

    name = "milvus"
    most_candidates = 8192  # Milvus gives at most 16,384
    parallel_writes = 4

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
        self._pymilvus = _pymilvus()
        self._collection = collection
        self._notes = f"{collection}_notes"
        self._owned = owned
        self._create_arguments = dict(create_arguments or {})
        self.place = place or f"milvus collection {collection!r}"

    def exists(self) -> bool:
        """See `IndexBackend`."""
        with self._errors():
            return bool(self._client.has_collection(self._collection))

    def create(self) -> None:
        """See `IndexBackend`."""
        kinds = self._pymilvus.DataType
        text = {"datatype": kinds.VARCHAR, "max_length": _FIELD_BYTES}
        self._create(
            self._collection,
            {
                "seq": {"datatype": kinds.INT64},
                "part": {"datatype": kinds.INT64},
                "length": {"datatype": kinds.INT64},
                "passage_id": text,
                "title": text,
                "text": text,
                "source_metadata": text,
                "metadata": {"datatype": kinds.JSON},
            },
            self._create_arguments,
        )
        if not self._client.has_collection(self._notes):
            # One shard: a writer's note must not overtake the sums it speaks of.
            self._create(self._notes, {"kind": text, "name": text, "text": text}, {"num_shards": 1})

    def drop(self) -> None:
        """See `IndexBackend`."""
        with self._errors():
            for name in (self._collection, self._notes):
                if self._client.has_collection(name):
                    self._client.drop_collection(name)

    def count(self) -> int:
        """See `IndexBackend`."""
        with self._errors():
            found = self._client.query(
                self._collection, filter="", output_fields=["count(*)"], consistency_level="Strong"
            )
        return int(found[0]["count(*)"])

    def upsert(self, records: Sequence[Record]) -> None:
        """See `IndexBackend`."""
        rows = [_entity(r) for r in records]
        with self._errors():
            self._client.upsert(self._collection, rows)

    def delete(self, keys: Sequence[str]) -> None:
        """See `IndexBackend`."""
        with self._errors():
            self._client.delete(self._collection, ids=list(keys))

    def fetch(self, keys: Sequence[str]) -> dict[str, Record]:
        """See `IndexBackend`."""
        found: dict[str, Record] = {}
        for i in range(0, len(keys), _AT_ONCE):
            with self._errors():
                entities = self._client.get(
                    self._collection,
                    ids=list(keys[i : i + _AT_ONCE]),
                    output_fields=_FIELDS,
                    consistency_level="Strong",
                )
            found.update((entity["key"], _record(entity)) for entity in entities)
        return found

    def search(
        self, queries: Sequence[Query], limit: int, condition: Filter | None, parts: PartRange | None
    ) -> list[list[Candidate]]:
        """See `IndexBackend`."""
        with self._errors():
            answers = self._client.search(
                self._collection,
                data=[dict(zip(q.dims.tolist(), q.weights.tolist(), strict=True)) for q in queries],
                anns_field="bag",
                limit=limit,
                filter=_expression(pushed(condition), parts),
                output_fields=_FIELDS,
                search_params=_EXACT_SEARCH,
                consistency_level="Strong",
            )
        return [[Candidate(_record(hit["entity"]), float(hit["distance"])) for hit in hits] for hits in answers]

    def heads(self, condition: Filter | None = None) -> Iterator[Head]:
        """See `IndexBackend`."""
        fields = ["key", "seq", "passage_id"]
        for entity in self._every(self._collection, _expression(pushed(condition), None), fields):
            yield Head(entity["key"], int(entity["seq"]), from_wire(entity["passage_id"]))

    def notes(self, kind: str) -> dict[str, str]:
        """See `IndexBackend`."""
        with self._errors():
            if not self._client.has_collection(self._notes):
                return {}
            found = self._client.query(
                self._notes,
                filter=f"kind == {json.dumps(kind)}",
                output_fields=["name", "text"],
                limit=_AT_ONCE,
                consistency_level="Strong",
            )
        return {entity["name"]: entity["text"] for entity in found}

    def put_notes(self, kind: str, notes: Mapping[str, str]) -> None:
        """See `IndexBackend`."""
        rows = [
            {"key": key_of(f"{kind}\n{name}"), "kind": kind, "name": name, "text": text, "bag": {0: 1.0}}
            for name, text in notes.items()
        ]
        with self._errors():
            self._client.upsert(self._notes, rows)

    def close(self) -> None:
        """See `IndexBackend`."""
        if self._owned:
            self._client.close()

    # Inside

    def _create(self, name: str, fields: Mapping[str, Mapping[str, Any]], arguments: Mapping[str, Any]) -> None:
        kinds = self._pymilvus.DataType
        with self._errors():
            schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("key", kinds.VARCHAR, max_length=36, is_primary=True)
            for field_name, field in fields.items():
                schema.add_field(field_name, **field)
            schema.add_field("bag", kinds.SPARSE_FLOAT_VECTOR)
            index = self._client.prepare_index_params()
            index.add_index("bag", index_type="SPARSE_INVERTED_INDEX", metric_type="IP", params={})
            self._client.create_collection(
                name, schema=schema, index_params=index, consistency_level="Strong", **arguments
            )

    def _every(self, collection: str, expression: str, fields: list[str]) -> Iterator[Any]:
        with self._errors():
            iterator = self._client.query_iterator(
                collection,
                batch_size=_AT_ONCE,
                filter=expression,
                output_fields=fields,
                consistency_level="Strong",
            )
        try:
            while True:
                with self._errors():
                    block = iterator.next()
                if not block:
                    return
                yield from block
        finally:
            iterator.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Milvus's own errors as a `StorageError`; their messages may hold values, so only the code is told."""
        try:
            yield
        except self._pymilvus.MilvusException as e:
            raise StorageError(
                f"{self.place}: the engine refused or did not answer ({type(e).__name__}, code {e.code})"
            ) from None


def _entity(record: Record) -> dict[str, Any]:
    row = record.row
    texts = {
        "passage_id": to_wire(row.id),
        "title": _NO_TITLE if row.title is None else to_wire(row.title),
        "text": to_wire(row.text),
        "source_metadata": to_wire(row.metadata),
    }
    for field, text in texts.items():
        if len(text) > _FIELD_BYTES // 4 and (size := len(text.encode("utf-8"))) > _FIELD_BYTES:
            raise InvalidInputError(
                f"passage {row.id!r}: its {field} takes {size:,} bytes, and Milvus keeps at most {_FIELD_BYTES:,} in a "
                "field; split it (sidr_rag.text.splitter) before adding it"
            )
    return {
        "key": record.key,
        "seq": row.seq,
        "part": record.part,
        "length": record.length,
        **texts,
        "metadata": filterable(metadata_of(row.metadata)),
        "bag": dict.fromkeys(record.dims.tolist(), record.value),
    }


def _record(entity: Mapping[str, Any]) -> Record:
    try:
        title = entity["title"]
        row = Row(
            int(entity["seq"]),
            from_wire(entity["passage_id"]),
            None if title == _NO_TITLE else from_wire(title),
            from_wire(entity["text"]),
            from_wire(entity["source_metadata"]),
        )
        bag: dict[int, float] = entity["bag"]
        dims = np.array(sorted(bag), dtype=np.int64)
        return Record(entity["key"], row, int(entity["length"]), dims, float(next(iter(bag.values()))))
    except (KeyError, TypeError, ValueError, StopIteration) as e:
        raise IndexFormatError(f"an entity is no passage of this library ({type(e).__name__})") from e


def _expression(condition: Pushed | None, parts: PartRange | None) -> str:
    conditions = [] if condition is None else [_condition(condition)]
    if parts is not None:
        conditions.append(f"part >= {parts.first} and part <= {parts.last}")
    return " and ".join(f"({c})" for c in conditions) if len(conditions) > 1 else "".join(conditions)


def _condition(condition: Pushed) -> str:
    if isinstance(condition, Joined):
        return f" {condition.by} ".join(f"({_condition(part)})" for part in condition.parts)
    field = "metadata" + "".join(f"[{json.dumps(name)}]" for name in condition.path)
    if isinstance(condition, Between):
        # Not in exponent form, which not every version reads.
        bounds = [(">=", condition.least), ("<=", condition.most)]
        return " and ".join(f"{field} {sign} {_number(bound)}" for sign, bound in bounds if bound is not None)
    if isinstance(condition, HasAny):
        return f"json_contains_any({field}, {json.dumps(list(condition.values))})"
    return " or ".join(f"{field} == {json.dumps(value)}" for value in condition.values)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else np.format_float_positional(value, trim="0")


def _pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError as e:
        raise MissingExtraError("pymilvus", "milvus", "a Milvus collection") from e
    return pymilvus
