"""DPR's files: Wikipedia passages as tab-separated values, and questions with their answer strings."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from pathlib import Path

from sidr_rag.errors import FileReadError, InvalidInputError
from sidr_rag.eval.lines import existing, malformed, raw_lines
from sidr_rag.types import Passage

_PASSAGE_FILE = "psgs_w100.tsv"
_QUESTION_FILES = ("*.qa.csv", "*.qa.csv.gz")


def dpr_passages(path: Path) -> Iterator[Passage]:
    """The passages of a file with the columns id, text and title, as DPR's `psgs_w100.tsv`; its header is skipped.

    Raises:
        FileReadError: for the first malformed record; names file and line.
    """
    for line, row in _records(path):
        if row == ["id", "text", "title"]:
            continue
        if len(row) != 3:
            raise malformed(path, line, f"has {len(row)} tab-separated columns; id, text and title are 3")
        passage_id, text, title = row
        if not passage_id:
            raise malformed(path, line, "has an empty id")
        yield Passage(passage_id, text, title or None)


def dpr_questions(path: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Questions and answers of a `*.qa.csv`: a question, a tab, and the answers as a Python list of strings.

    Returns:
        Texts and answer strings, both by the question's place: "0", "1" and so on.

    Raises:
        FileReadError: for a malformed record; names file and line.
    """
    texts: dict[str, str] = {}
    answers: dict[str, list[str]] = {}
    for line, row in _records(path):
        if len(row) != 2:
            raise malformed(path, line, f"has {len(row)} tab-separated columns; question and answers are 2")
        query_id = str(len(texts))
        texts[query_id] = row[0]
        answers[query_id] = _answers(row[1], path, line)
    if not texts:
        raise FileReadError(f"{path}: holds no questions")
    return texts, answers


def find_passages(folder: Path) -> Path | None:
    """DPR's file of passages in a folder."""
    return existing(folder, _PASSAGE_FILE)


def find_questions(folder: Path, split: str) -> Path:
    """The one file of questions of a split in a folder, such as `nq-test.qa.csv` for "test".

    Raises:
        InvalidInputError: if there is none or more than one; names those there are.
    """
    every = sorted(path for pattern in _QUESTION_FILES for path in folder.glob(pattern))
    found = [path for path in every if path.name.split(".qa.csv")[0].split("-")[-1] == split]
    if len(found) != 1:
        names = ", ".join(path.name for path in found or every) or "none"
        raise InvalidInputError(
            f"split={split!r}: {folder} should hold one file of questions *-{split}.qa.csv; found {names}; "
            "name the file with questions="
        )
    return found[0]


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Every record with the number of the line it starts at; a quoted value may run over several lines."""
    reader = csv.reader((text for _, text in raw_lines(path)), delimiter="\t")
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise malformed(path, line, f"starts a record that cannot be read ({error})") from error
        if row is None:
            return
        if row:
            yield line, row


def _answers(written: str, path: Path, line: int) -> list[str]:
    try:
        answers = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise malformed(path, line, "has answers that are no Python list, such as ['Paris', \"the city\"]") from error
    if not isinstance(answers, list) or not all(isinstance(a, str) for a in answers):
        raise malformed(path, line, "has answers that are no list of strings")
    return answers
