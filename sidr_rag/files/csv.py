"""CSV and TSV with a header row: one record per row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sidr_rag.files.csv_rows import rows
from sidr_rag.files.document import Fault, Section
from sidr_rag.files.encoding import open_text
from sidr_rag.files.limits import Limits
from sidr_rag.files.records import TEXT_FIELDS, find_field, record_section

# What spreadsheets write for "CSV" depends on the user's locale.
_DELIMITERS = (",", ";", "\t", "|")


def load(path: Path, limits: Limits, fault: Fault) -> Iterator[Section]:
    """One section per row; without a column of text, all columns are joined as "name: value" lines.

    Values stay strings and empty ones are left out of the metadata. Columns without a name are called "column N".

    Raises:
        FileReadError: the file is not text, or is too large.
        OSError: the file cannot be opened.
    """
    with open_text(path, limits, fault) as file:
        if path.suffix.lower() == ".tsv":
            delimiter = "\t"
        else:
            head = file.readline(limits.max_record_chars)
            file.seek(0)
            delimiter = max(_DELIMITERS, key=head.count)
        names: list[str] | None = None
        text_field: str | None = None
        for number, row in rows(file, delimiter, limits.max_record_chars):
            if isinstance(row, str):
                fault(f"line {number}: {row}")
                if names is None:
                    return
            elif names is None:
                names = _column_names(row)
                text_field = find_field(names, TEXT_FIELDS)
            else:
                yield _section(names, row, text_field)


def _section(names: list[str], row: list[str], text_field: str | None) -> Section:
    extra = [f"column {i + 1}" for i in range(len(names), len(row))]
    record = {name: value for name, value in zip([*names, *extra], row, strict=False) if value.strip()}
    if text_field is not None:
        return record_section(record, text_field)
    return record_section(record, "", "\n".join(f"{name}: {value}" for name, value in record.items()))


def _column_names(header: list[str]) -> list[str]:
    names: list[str] = []
    seen: dict[str, int] = {}
    for i, cell in enumerate(header, start=1):
        name = cell.strip() or f"column {i}"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return names
