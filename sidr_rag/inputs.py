"""What callers hand in, checked item by item: rows to add, ids, queries, counts."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.index.passages import Row, metadata_json
from sidr_rag.types import Passage

_MISSING = object()
_IDS_AT_ONCE = 64
_PLACES = [f"{i:02x}" for i in range(_IDS_AT_ONCE)]


def rows_of_columns(
    texts: Iterable[str],
    ids: Iterable[str | None] | None,
    metadatas: Iterable[Mapping[str, Any] | None] | None,
    titles: Iterable[str | None] | None,
    given: list[str],
) -> Iterator[Row]:
    """Rows of parallel columns, read in step; every row's id is also appended to `given`.

    Raises:
        InvalidTypeError: for a string instead of a list, or an item of another type; names argument and position.
        InvalidInputError: if a column is shorter or longer than `texts`.
    """
    columns: dict[str, Iterable[Any]] = {"texts": texts}
    for name, column in (("ids", ids), ("metadatas", metadatas), ("titles", titles)):
        if column is not None:
            columns[name] = column
    for name, column in columns.items():
        if isinstance(column, (str, bytes, Mapping)) or not isinstance(column, Iterable):
            raise InvalidTypeError(f"{name} is a {type(column).__name__}; give a list with one item for each text")
    names = ("ids", "metadatas", "titles")
    others: list[Iterator[Any]] = [
        chain(columns[name], repeat(_MISSING)) if name in columns else repeat(None) for name in names
    ]
    new_ids = _new_ids()
    n_texts = 0
    for i, (text, passage_id, data, title) in enumerate(zip(texts, *others, strict=False)):
        n_texts = i + 1
        if passage_id is _MISSING or data is _MISSING or title is _MISSING:
            short = "ids" if passage_id is _MISSING else "metadatas" if data is _MISSING else "titles"
            raise InvalidInputError(f"{short} has {i} items, but texts has more; give one for each text")
        row = _row(i, text, passage_id, data, title, new_ids)
        given.append(row.id)
        yield row
    for name, other in zip(names, others, strict=True):
        if name in columns and next(other, _MISSING) is not _MISSING:
            raise InvalidInputError(f"texts has {n_texts} items, but {name} has more; give one for each text")


def rows_of_passages(passages: Iterable[Passage], given: list[str]) -> Iterator[Row]:
    """Rows of `Passage` objects; every id is also appended to `given`."""
    new_ids = _new_ids()
    for i, passage in enumerate(passages):
        if not isinstance(passage, Passage):
            raise InvalidTypeError(f"passages[{i}] is a {type(passage).__name__}; give Passage objects")
        row = _row(i, passage.text, passage.id, passage.metadata, passage.title, new_ids)
        given.append(row.id)
        yield row


def ids_list(ids: Iterable[str]) -> list[str]:
    """Ids as a list.

    Raises:
        InvalidTypeError: for a single string, or an id that is no string.
    """
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise InvalidTypeError(f"ids is a {type(ids).__name__}; give a list of ids")
    wanted = list(ids)
    for i, value in enumerate(wanted):
        if not isinstance(value, str):
            raise InvalidTypeError(f"ids[{i}] is a {type(value).__name__}; ids are strings")
    return wanted


def query_list(queries: Sequence[str]) -> list[str]:
    """Queries as a list.

    Raises:
        InvalidTypeError: if it is no list of strings.
    """
    if isinstance(queries, (bytes, Mapping)) or not isinstance(queries, Iterable):
        raise InvalidTypeError(f"query is a {type(queries).__name__}; give a string or a list of strings")
    wanted = list(queries)
    for i, value in enumerate(wanted):
        if not isinstance(value, str):
            raise InvalidTypeError(f"query[{i}] is a {type(value).__name__}; queries are strings")
    return wanted


def as_count(name: str, value: Any, least: int = 0) -> int:
    """An integer argument.

    Raises:
        InvalidTypeError: if it is a bool or no integer.
        InvalidInputError: if it is below `least`.
    """
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise InvalidTypeError(f"{name}={value!r} is a {type(value).__name__}; give an integer of at least {least}")
    number = operator.index(value)
    if number < least:
        raise InvalidInputError(f"{name}={number} is too small; give an integer of at least {least}")
    return number


def _new_ids() -> Iterator[str]:
    """Ids of 32 hexadecimal digits: the time, then 64 random bits, asked of the system for many at a time.

    They rise, so that a database appends them to its index instead of changing pages all over it.
    """
    while True:
        digits = os.urandom(8 * _IDS_AT_ONCE).hex()
        moment = f"{time.time_ns() >> 8:014x}"  # the next 256 ns are long over when so many ids were used
        yield from (moment + place + digits[16 * i : 16 * i + 16] for i, place in enumerate(_PLACES))


def _row(i: int, text: Any, passage_id: Any, metadata: Any, title: Any, new_ids: Iterator[str]) -> Row:
    # Exact strings: a subclass could behave otherwise later, and its str() may be another text.
    if type(text) is not str:
        if not isinstance(text, str):
            raise InvalidTypeError(f"texts[{i}] is a {type(text).__name__}; texts are strings")
        text = str.__str__(text)
    if passage_id is None:
        passage_id = next(new_ids)
    elif type(passage_id) is not str:
        if not isinstance(passage_id, str):
            raise InvalidTypeError(
                f"ids[{i}]={passage_id!r} is a {type(passage_id).__name__}; ids are strings, use str(id)"
            )
        passage_id = str.__str__(passage_id)
    if title is not None and type(title) is not str:
        if not isinstance(title, str):
            raise InvalidTypeError(f"titles[{i}] is a {type(title).__name__}; titles are strings or None")
        title = str.__str__(title)
    return Row(0, passage_id, title, text, "{}" if metadata is None else metadata_json(metadata, passage_id))
