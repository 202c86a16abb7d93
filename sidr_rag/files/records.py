"""Records with named fields to sections: the field rules that jsonl and csv share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sidr_rag.files.document import MAX_TITLE_CHARS, Section

TEXT_FIELDS = ("text", "content", "body", "passage", "contents")
TITLE_FIELDS = ("title",)
ID_FIELDS = ("id", "_id", "doc_id")

_MAX_ID_CHARS = 512


def find_field(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The first of `wanted` that is among `names`, whatever its case; None if none is."""
    by_folded = {name.strip().lower(): name for name in reversed(list(names))}
    return next((by_folded[name] for name in wanted if name in by_folded), None)


def record_section(record: Mapping[str, Any], text_field: str, text: str | None = None) -> Section:
    """One record as a section: its text, title and own id, and every other field as metadata.

    Args:
        record: JSON values by field name.
        text_field: the field that holds the text; left out of the metadata.
        text: used in place of that field's value.

    Returns:
        A section with empty text if the record has neither text nor title. A title without text becomes the text,
        and so does a title that is too long to be repeated with every passage.
    """
    rest = dict(record)
    body = rest.pop(text_field, None) if text is None else text
    body = body if isinstance(body, str) else ""
    title = _pop_text(rest, TITLE_FIELDS)
    if title and (not body.strip() or len(title) > MAX_TITLE_CHARS):
        body, title = f"{title}\n{body}" if body.strip() else title, None
    return Section(body, title, rest, _pop_id(rest))


def _pop_text(record: dict[str, Any], names: Iterable[str]) -> str | None:
    name = find_field(record, names)
    if name is None or not isinstance(record[name], str):
        return None
    return record.pop(name).strip() or None


def _pop_id(record: dict[str, Any]) -> str | None:
    name = find_field(record, ID_FIELDS)
    if name is None:
        return None
    value = record[name]
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_ID_CHARS:
        return None
    del record[name]
    return value
