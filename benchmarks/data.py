"""Real passages and questions, read from the shared data that lies beside the checkout."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"
_PIECE_WORDS = 100
_SMALL_SOURCE = "medquad.jsonl.gz"
_LEAST_WORDS, _MOST_WORDS = 80, 120


def natural_passages(n: int) -> list[str]:
    """So many distinct texts of 80 to 120 words (between white space), evenly spaced over all training data."""
    return spread([t for t in _distinct_texts() if _LEAST_WORDS <= len(t.split()) <= _MOST_WORDS], n)


def cut_passages(n: int) -> list[str]:
    """So many pieces of 100 words (a text's last one: at least 80), evenly spaced over all training data."""
    return spread(_pieces(_distinct_texts()), n)


def few_passages(n: int) -> list[str]:
    """The same of one small source, evenly spaced; read in no time, for trials."""
    return spread(_pieces(dict.fromkeys(record["text"] for record in _few_records())), n)


def few_questions(n: int) -> list[str]:
    """So many distinct queries of the same source, evenly spaced."""
    return spread(list(dict.fromkeys(r["query"] for r in _few_records() if r.get("query"))), n)


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


def _pieces(texts: Iterable[str]) -> list[str]:
    pieces = []
    for text in texts:
        words = text.split()
        for start in range(0, len(words) - _LEAST_WORDS + 1, _PIECE_WORDS):
            pieces.append(" ".join(words[start : start + _PIECE_WORDS]))
    return list(dict.fromkeys(pieces))


def _distinct_texts() -> Iterator[str]:
    return iter(dict.fromkeys(record["text"] for record in _training_records()))


def _training_records() -> Iterator[dict[str, Any]]:
    for path in sorted(_folder("train").glob("*.jsonl.gz")):
        yield from _records(path)


def _few_records() -> Iterator[dict[str, Any]]:
    return _records(_folder("train") / _SMALL_SOURCE)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as f:
        for line in f:
            yield json.loads(line)


def _folder(part: str) -> Path:
    folder = _SHARED / part
    if not folder.is_dir():
        raise SystemExit(f"no ../shared/data/{part} beside the checkout: the benchmarks read their texts from there")
    return folder
