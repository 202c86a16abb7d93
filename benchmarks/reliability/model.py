"""What a store must hold and answer, worked out from a plain dictionary."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.reliability.parts import Parts
from sidr_rag import SiDR

OnConflict = Literal["replace", "error", "skip"]
_LISTED = {"sidr.json", "passages.db", "embeddings.db", "segments", "lock"}
_JOURNALS = {f"{name}{end}" for name in ("passages.db", "embeddings.db") for end in ("-wal", "-shm")} | {
    "embeddings.db-journal"
}


class Doc(NamedTuple):
    """One passage without its id."""

    text: str
    title: str | None
    metadata: dict[str, Any]


@dataclass
class Model:
    """The living passages, oldest first."""

    docs: dict[str, Doc] = field(default_factory=dict)

    def copy(self) -> Model:
        """A model that changes on its own."""
        return Model(dict(self.docs))

    def add(self, items: Iterable[tuple[str, Doc]], on_conflict: OnConflict = "replace") -> None:
        """A later passage of an id takes the place of an earlier one, at the end of the order ("skip": does not)."""
        for passage_id, doc in items:
            if on_conflict == "skip" and passage_id in self.docs:
                continue
            self.docs.pop(passage_id, None)
            self.docs[passage_id] = doc

    def delete(self, ids: Iterable[str]) -> int:
        """How many there were."""
        return sum(self.docs.pop(i, None) is not None for i in dict.fromkeys(ids))

    def fill(self, sidr: SiDR) -> SiDR:
        """Put everything into an empty store, in one call."""
        add_docs(sidr, list(self.docs.items()))
        return sidr


def add_docs(sidr: SiDR, items: Sequence[tuple[str, Doc]], on_conflict: OnConflict = "replace") -> None:
    """One call of `add`."""
    sidr.add(
        [doc.text for _, doc in items],
        ids=[passage_id for passage_id, _ in items],
        titles=[doc.title for _, doc in items],
        metadatas=[doc.metadata for _, doc in items],
        on_conflict=on_conflict,
    )


def contents(sidr: SiDR) -> list[tuple[str, Doc]]:
    """Every passage that a store gives back, in its order."""
    return [(p.id, Doc(p.text, p.title, dict(p.metadata))) for p in sidr.get(sidr.ids())]


def passages_differ(sidr: SiDR, model: Model) -> str | None:
    """How the stored passages differ from the model's, in words without their text; None if they do not."""
    found, wanted = contents(sidr), list(model.docs.items())
    if len(sidr) != len(wanted):
        return f"len is {len(sidr)}, and should be {len(wanted)}"
    if [i for i, _ in found] != [i for i, _ in wanted]:
        missing = sorted({i for i, _ in wanted} - {i for i, _ in found})
        extra = sorted({i for i, _ in found} - {i for i, _ in wanted})
        return f"ids differ: {len(missing)} missing {missing[:3]}, {len(extra)} too many {extra[:3]}, or another order"
    for (passage_id, a), (_, b) in zip(found, wanted, strict=True):
        if a != b:
            return f"passage {passage_id!r} has another text, title or metadata"
    return None


class Ask(NamedTuple):
    """A search that needs no encoder."""

    query: str
    k: int = 10_000
    filter: Mapping[str, Any] | None = None


def answers(sidr: SiDR, asks: Sequence[Ask]) -> list[list[tuple[str, float]]]:
    """Ids and scores of lexical searches."""
    results = [sidr.search(a.query, k=a.k, filter=a.filter, first_stage="lexical") for a in asks]
    return [[(r.passage.id, r.score) for r in found] for found in results]


def searches_differ(sidr: SiDR, model: Model, asks: Sequence[Ask], parts: Parts) -> str | None:
    """Whether any search answers otherwise than a fresh index over the model, to the bit of every score."""
    fresh = model.fill(parts.memory())
    for ask, a, b in zip(asks, answers(sidr, asks), answers(fresh, asks), strict=True):
        if a != b:
            first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            return f"query {ask!r}: {len(a)} results, a fresh index has {len(b)}; the first difference is at {first}"
    return None


def stray_files(folder: Path) -> list[str]:
    """Files in a closed store's folder that no commit names."""
    found = [p.name for p in folder.iterdir() if p.name not in _LISTED | _JOURNALS]
    connection = sqlite3.connect(f"{folder.joinpath('passages.db').absolute().as_uri()}?mode=ro", uri=True)
    try:
        listed = {f"{name}.seg" for (name,) in connection.execute("SELECT name FROM segments")}
    finally:
        connection.close()
    there = {p.name for p in folder.joinpath("segments").iterdir()}
    return found + sorted(there - listed) + [f"missing {name}" for name in sorted(listed - there)]
