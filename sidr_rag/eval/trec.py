"""Runs and judgements in TREC's text formats, which every retrieval toolkit reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from sidr_rag.errors import InvalidInputError
from sidr_rag.eval.lines import malformed, numbered_lines

Run: TypeAlias = Mapping[str, Sequence[tuple[str, float]]]
"""Query id -> (passage id, score) of what was found, best first."""

Qrels: TypeAlias = Mapping[str, Mapping[str, int]]
"""Query id -> passage id -> grade; grades above 0 are relevant."""


def write_run(run: Run, path: str | Path, tag: str = "sidr-rag") -> None:
    """Write a run: query id, Q0, passage id, rank, score, tag.

    Tools order a run by score alone, most of them in float32, and break ties each in its own way. So scores are written
    as float32 that fall strictly: equal ones are set apart by the least step, and every tool sees the run's own order.

    Raises:
        InvalidInputError: if an id or the tag is empty or holds white space, if a score is not finite, or if
            scores rise within a query; nothing is written then.
    """
    check_ids("tag", [tag])
    check_ids("query id", run)
    lines = []
    for query_id, found in run.items():
        check_ids("passage id", (passage_id for passage_id, _ in found))
        scores = _falling([score for _, score in found], query_id)
        for rank, ((passage_id, _), score) in enumerate(zip(found, scores, strict=True), start=1):
            lines.append(f"{query_id} Q0 {passage_id} {rank} {score:.9g} {tag}\n")
    Path(path).write_text("".join(lines), encoding="utf-8")


def read_run(path: str | Path) -> dict[str, list[tuple[str, float]]]:
    """Read a run, plain or `.gz`; passages come by score, and among equal scores by the rank that the file gives.

    Raises:
        FileReadError: for a malformed line or a passage that comes twice for a query; names file and line.
    """
    path = Path(path)
    rows: dict[str, dict[str, tuple[float, int]]] = {}
    for line, parts in _fields(path, 6):
        query_id, _, passage_id, rank, score, _ = parts
        try:
            place, value = int(rank), float(score)
        except ValueError as error:
            raise malformed(path, line, "has a rank or score that is no number") from error
        if not math.isfinite(value):
            raise malformed(path, line, "has a score that is not finite")
        of_query = rows.setdefault(query_id, {})
        if passage_id in of_query:
            raise malformed(path, line, f"repeats passage {passage_id!r} for query {query_id!r}")
        of_query[passage_id] = (-value, place)
    return {
        query_id: [(passage_id, -of_query[passage_id][0]) for passage_id in sorted(of_query, key=of_query.__getitem__)]
        for query_id, of_query in rows.items()
    }


def write_qrels(qrels: Qrels, path: str | Path) -> None:
    """Write judgements: query id, 0, passage id, grade.

    Raises:
        InvalidInputError: if an id is empty or holds white space; nothing is written then.
    """
    check_ids("query id", qrels)
    for judged in qrels.values():
        check_ids("passage id", judged)
    lines = [f"{q} 0 {p} {grade}\n" for q, judged in qrels.items() for p, grade in judged.items()]
    Path(path).write_text("".join(lines), encoding="utf-8")


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements in TREC's format, plain or `.gz`.

    Raises:
        FileReadError: for a malformed line or two grades for one passage; names file and line.
    """
    path = Path(path)
    return _judgements(path, ((line, (p[0], p[2], p[3])) for line, p in _fields(path, 4)))


def read_beir_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements in BEIR's format: query-id, corpus-id and score, tab-separated, with or without a header.

    Raises:
        FileReadError: as `read_qrels`.
    """
    path = Path(path)
    rows = []
    for i, (line, text) in enumerate(numbered_lines(path)):
        parts = text.split("\t")
        if len(parts) != 3:
            raise malformed(path, line, f"has {len(parts)} tab-separated columns; query-id, corpus-id and score are 3")
        if i or parts != ["query-id", "corpus-id", "score"]:
            rows.append((line, (parts[0], parts[1], parts[2])))
    return _judgements(path, rows)


def check_ids(what: str, ids: Iterable[str]) -> None:
    """Refuse ids that a line of fields between white space cannot hold.

    Raises:
        InvalidInputError: naming the first.
    """
    for i in ids:
        if not i or len(i.split()) != 1 or i != i.strip():
            raise InvalidInputError(
                f"{what} {i!r} is empty or holds white space, which TREC's formats cannot hold; "
                "replace the white space in the ids"
            )


def _fields(path: Path, n: int) -> Iterable[tuple[int, list[str]]]:
    for line, text in numbered_lines(path):
        parts = text.split()
        if len(parts) != n:
            raise malformed(path, line, f"has {len(parts)} fields between white space; it must have {n}")
        yield line, parts


def _judgements(path: Path, rows: Iterable[tuple[int, tuple[str, str, str]]]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for line, (query_id, passage_id, written) in rows:
        try:
            grade = int(written)
        except ValueError as error:
            raise malformed(path, line, "has a grade that is no integer") from error
        if qrels.setdefault(query_id, {}).setdefault(passage_id, grade) != grade:
            raise malformed(path, line, f"judges passage {passage_id!r} for query {query_id!r} again, otherwise")
    return qrels


def _falling(scores: Sequence[float], query_id: str) -> list[np.float32]:
    falling: list[np.float32] = []
    for i, score in enumerate(scores):
        if not math.isfinite(score) or (i and score > scores[i - 1]):
            raise InvalidInputError(
                f"run: query {query_id!r} has a score at rank {i + 1} that is not finite or above the one before; "
                "order its passages best first"
            )
        with np.errstate(over="ignore"):
            value = np.float32(score)
        if falling and value >= falling[-1]:
            value = np.nextafter(falling[-1], np.float32(-np.inf))
        if not np.isfinite(value):
            raise InvalidInputError(
                f"run: query {query_id!r} has the score {score!r}, beyond float32; scale the scores"
            )
        falling.append(value)
    return falling
