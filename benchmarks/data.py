"""Real passages, questions and judged sets, read from the shared data that lies beside the checkout."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"
_PIECE_WORDS = 100
_LEAST_WORDS, _MOST_WORDS = 80, 120


@dataclass(frozen=True)
class JudgedSet:
    """A corpus with questions and relevance grades.

    Attributes:
        name: the set's folder.
        ids: passage ids, in corpus order.
        titles: one for each passage; None where the set has none.
        texts: one for each passage.
        queries: text by query id, of every query that has a judgement, in file order.
        qrels: query id -> passage id -> grade.
    """

    name: str
    ids: list[str]
    titles: list[str | None]
    texts: list[str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]

    @property
    def contents(self) -> list[str]:
        """Title and text of each passage, separated by one space, as the library indexes them."""
        return [f"{title} {text}" if title else text for title, text in zip(self.titles, self.texts, strict=True)]


def judged_set(name: str, *, split: str = "test", limit_queries: int | None = None) -> JudgedSet:
    """Read one judged set; the limit keeps evenly spaced queries."""
    folder = _folder("eval") / name
    with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8", newline="") as f:
        lines = csv.reader(f, delimiter="\t")
        next(lines)  # the header
        qrels: dict[str, dict[str, int]] = {}
        for query_id, passage_id, grade in lines:
            qrels.setdefault(query_id, {})[passage_id] = int(grade)
    queries = {q["_id"]: q["text"] for q in _records(folder / "queries.jsonl.gz") if q["_id"] in qrels}
    if limit_queries is not None:
        queries = dict(spread(list(queries.items()), min(limit_queries, len(queries))))
    corpus = list(_records(folder / "corpus.jsonl.gz"))
    return JudgedSet(
        name,
        [p["_id"] for p in corpus],
        [p.get("title") or None for p in corpus],
        [p["text"] for p in corpus],
        queries,
        {query_id: qrels[query_id] for query_id in queries},
    )


def natural_passages(n: int) -> list[str]:
    """So many distinct texts of 80 to 120 words (between white space), evenly spaced over all training data."""
    return spread([t for t in _distinct_texts() if _LEAST_WORDS <= len(t.split()) <= _MOST_WORDS], n)


def cut_passages(n: int) -> list[str]:
    """So many pieces of 100 words (a text's last one: at least 80), evenly spaced over all training data."""
    pieces = []
    for text in _distinct_texts():
        words = text.split()
        for start in range(0, len(words) - _LEAST_WORDS + 1, _PIECE_WORDS):
            pieces.append(" ".join(words[start : start + _PIECE_WORDS]))
    return spread(list(dict.fromkeys(pieces)), n)


def questions(n: int) -> list[str]:
    """So many distinct queries of the training pairs that end in a question mark, evenly spaced."""
    asked = (r["query"] for r in _training_records() if r.get("query", "").endswith("?"))
    return spread(list(dict.fromkeys(asked)), n)


def spread(items: Sequence[T], n: int) -> list[T]:
    """So many items, evenly spaced.

    Raises:
        SystemExit: if there are fewer.
    """
    if len(items) < n:
        raise SystemExit(f"asked for {n} items of the shared data, which has {len(items)} of this kind")
    return [items[i * len(items) // n] for i in range(n)]


def _distinct_texts() -> Iterator[str]:
    return iter(dict.fromkeys(record["text"] for record in _training_records()))


def _training_records() -> Iterator[dict[str, Any]]:
    for path in sorted(_folder("train").glob("*.jsonl.gz")):
        yield from _records(path)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as f:
        for line in f:
            yield json.loads(line)


def _folder(part: str) -> Path:
    folder = _SHARED / part
    if not folder.is_dir():
        raise SystemExit(f"no ../shared/data/{part} beside the checkout: the benchmarks read their texts from there")
    return folder
