"""How much of a file, and of how many files, is read before giving up."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from sidr_rag.errors import InvalidInputError, InvalidTypeError


@dataclass(frozen=True)
class Limits:
    """Bounds that keep hostile or mistaken input from exhausting time, memory or disk.

    Attributes:
        max_file_bytes: a larger file is skipped.
        max_pages: a PDF with more pages is refused.
        max_decompressed_bytes: a docx that unpacks to more, or a PDF that gives more text, is refused.
        max_files: files read from all paths together; the rest is reported as one entry.
        max_record_chars: a longer jsonl or csv record is left out.
        max_metadata_chars: metadata fields of a record or document beyond this sum are left out,
            because every passage of a long record carries them.
        pdf_timeout_s: seconds that a PDF may take.
        pdf_memory_bytes: address space that a PDF's reader may take.
        html_timeout_s: seconds that an HTML file may take to parse.

    Raises:
        InvalidTypeError: a value is not a number (not a whole one, except for seconds).
        InvalidInputError: a value is not positive and finite.
    """

    max_file_bytes: int = 50_000_000
    max_pages: int = 2_000
    max_decompressed_bytes: int = 200_000_000
    max_files: int = 100_000
    max_record_chars: int = 5_000_000
    max_metadata_chars: int = 20_000
    pdf_timeout_s: float = 60.0
    pdf_memory_bytes: int = 2_000_000_000
    html_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            seconds = field.name.endswith("_s")
            if isinstance(value, bool) or not isinstance(value, (int, float) if seconds else int):
                wanted = "a number of seconds" if seconds else "a whole number"
                raise InvalidTypeError(f"Limits.{field.name} must be {wanted}, got {type(value).__name__}")
            if not math.isfinite(value) or value <= 0:
                raise InvalidInputError(f"Limits.{field.name} must be above 0 and finite, got {value!r}")
