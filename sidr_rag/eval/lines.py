"""Lines of text files, plain or gzip, one after another, with their numbers for messages."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from sidr_rag.errors import FileReadError


def raw_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of every line with its end, decoded line by line, so that a fault has the right number.

    Raises:
        FileReadError: if the file is missing, is no UTF-8, or is damaged gzip; names file and line.
    """
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise malformed(path, number, "is no UTF-8; convert the file") from error
    except (EOFError, zlib.error, OSError) as error:
        if number:
            raise malformed(path, number + 1, f"cannot be read ({error}); fetch the file anew") from error
        raise FileReadError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The same without line ends and without lines of white space alone."""
    for number, line in raw_lines(path):
        if not line.isspace():
            yield number, line.rstrip("\r\n")


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and value of every line of a JSON-lines file.

    Raises:
        FileReadError: as `numbered_lines`, or if a line is no JSON object; names file and line.
    """
    for number, line in numbered_lines(path):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise malformed(path, number, f"is no JSON ({error.msg}, column {error.colno})") from error
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits, nesting without end
            raise malformed(path, number, "is JSON that cannot be read") from error
        if not isinstance(value, dict):
            raise malformed(path, number, f"is JSON, but no object: {type(value).__name__}")
        yield number, value


def existing(folder: Path, name: str) -> Path | None:
    """The file `name` or `name.gz` of a folder, or None if there is neither."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def malformed(path: Path, line: int, reason: str) -> FileReadError:
    """The error for one line; the reason must hold nothing of the line's own text."""
    return FileReadError(f"{path}, line {line:,}: {reason}")


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
