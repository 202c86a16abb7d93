"""Training pairs from the formats that the field uses, read as streams; a malformed record is named by its place."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from sidr_rag.errors import FileReadError, InvalidInputError
from sidr_rag.eval.datasets import load_beir
from sidr_rag.eval.lines import json_objects
from sidr_rag.train.sections import Source

_BLOCK = 1 << 20
_BLANK = " \t\r\n"


@dataclass(frozen=True)
class Text:
    """A passage as a source gives it."""

    text: str
    title: str | None = None


@dataclass(frozen=True)
class Pair:
    """A query with what answers it.

    Attributes:
        query: never blank.
        positives: at least one passage; training draws one of them.
        negatives: passages that the source says do not answer it.
        answers: strings of which one must occur in a passage that answers it; empty where they are not known.
    """

    query: str
    positives: tuple[Text, ...]
    negatives: tuple[Text, ...] = ()
    answers: tuple[str, ...] = ()


def read_source(source: Source) -> Iterator[Pair]:
    """The pairs of a source, in file order.

    Raises:
        FileReadError: if a file is absent, damaged, or a record lacks something; the message names file and place.
    """
    if source.format == "dpr":
        return read_dpr(source.path)
    if source.format == "beir":
        return read_beir(source.path, source.split)
    return read_pairs(source.path)


def read_pairs(path: Path) -> Iterator[Pair]:
    """JSON lines with "query", "text", and where known "title", "answers" and "negatives" (a list of texts)."""
    for place, record in _json_lines(path):
        query, text = _string(record, "query", place), _string(record, "text", place)
        title = record.get("title") or None
        if query.strip() and text.strip():
            negatives = tuple(Text(n) for n in record.get("negatives") or () if isinstance(n, str) and n.strip())
            yield Pair(query, (Text(text, title),), negatives, _answers(record, place))


def read_passages(path: Path) -> Iterator[Text]:
    """JSON lines with "text" and where known "title"."""
    for place, record in _json_lines(path):
        text = _string(record, "text", place)
        if text.strip():
            yield Text(text, record.get("title") or None)


def read_dpr(path: Path) -> Iterator[Pair]:
    """A DPR training file: one JSON array of questions with contexts, of any size.

    Questions without a positive context are left out, as DPR does.
    """
    for place, record in _json_array(path):
        query = _string(record, "question", place)
        positives = _contexts(record, "positive_ctxs", place)
        negatives = _contexts(record, "hard_negative_ctxs", place) or _contexts(record, "negative_ctxs", place)
        if query.strip() and positives:
            yield Pair(query, positives, negatives, _answers(record, place))


def read_beir(folder: Path, split: str = "train") -> Iterator[Pair]:
    """A BEIR folder: every judged query with its passages of positive grade; grade 0 gives negatives."""
    dataset = load_beir(folder, split)
    texts = {passage.id: Text(passage.text, passage.title) for passage in dataset.passages()}
    for query_id, query in dataset.queries.items():
        grades = dataset.qrels[query_id]
        lacking = next((passage_id for passage_id in grades if passage_id not in texts), None)
        if lacking is not None:
            raise FileReadError(f"{folder}, split {split!r}: judges the passage {lacking!r}, which the corpus lacks")
        positives = tuple(texts[passage_id] for passage_id, grade in grades.items() if grade > 0)
        if positives:
            negatives = tuple(texts[passage_id] for passage_id, grade in grades.items() if grade <= 0)
            yield Pair(query, positives, negatives, tuple(dataset.answers.get(query_id, ())))


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, record in json_objects(path):
        yield f"{path}, line {number:,}", record


def _json_array(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of one JSON array, holding one object and one block of text at a time."""
    decoder = json.JSONDecoder()
    with _opened(path) as file:
        buffer, ended, number = file.read(_BLOCK).lstrip(), False, 0
        if not buffer.startswith("["):
            raise FileReadError(f"{path}: no JSON array; expected a DPR training file")
        buffer = buffer[1:]
        while True:
            buffer = buffer.lstrip(_BLANK + ",")
            if buffer.startswith("]"):
                return
            try:
                value, end = decoder.raw_decode(buffer)
            except ValueError:
                if ended:
                    raise FileReadError(f"{path}, record {number + 1}: not JSON, or the file was cut off") from None
                more = file.read(max(_BLOCK, len(buffer)))
                ended = not more
                buffer += more
                continue
            number += 1
            place = f"{path}, record {number}"
            if not isinstance(value, dict):
                raise FileReadError(f"{place}: holds a {type(value).__name__}; expected an object")
            yield place, value
            buffer = buffer[end:]


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FileReadError(f"{path}: cannot be read ({type(error).__name__})") from None


def _string(record: Mapping[str, Any], key: str, place: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise FileReadError(f"{place}: {key!r} is absent or no string")
    return value


def _answers(record: Mapping[str, Any], place: str) -> tuple[str, ...]:
    answers = record.get("answers") or ()
    if isinstance(answers, str) or not all(isinstance(answer, str) for answer in answers):
        raise FileReadError(f"{place}: 'answers' is no list of strings")
    return tuple(answer for answer in answers if answer.strip())


def _contexts(record: Mapping[str, Any], key: str, place: str) -> tuple[Text, ...]:
    contexts = record.get(key) or ()
    if not isinstance(contexts, (list, tuple)) or not all(isinstance(c, dict) for c in contexts):
        raise FileReadError(f"{place}: {key!r} is no list of objects")
    return tuple(
        Text(_string(c, "text", place), c.get("title") or None) for c in contexts if str(c.get("text", "")).strip()
    )


def source_name(path: Path) -> str:
    """What a source is called in logs: its file's or folder's name without suffixes.

    Raises:
        InvalidInputError: if the path has no name.
    """
    if not path.name:
        raise InvalidInputError(f"data.sources: path {str(path)!r} names no file or folder")
    return path.name.split(".")[0]
