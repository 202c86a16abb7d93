"""The process that reads one PDF from standard input and writes its pages as JSON lines to standard output.

It imports neither NumPy nor the rest of the package, so that its limit on memory is spent on the PDF.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO


def main(arguments: dict[str, Any]) -> None:
    """Read the PDF on standard input under the limits given.

    Args:
        arguments: `max_pages`, `max_chars` of text, `memory_bytes` of address space, `cpu_s` of processor time.
    """
    with os.fdopen(os.dup(1), "w", encoding="ascii") as output, open(0, "rb", closefd=False) as file:
        # Whatever the PDF library prints must not mix with the messages.
        sys.stdout = sys.stderr
        _limit(resource.RLIMIT_AS, arguments["memory_bytes"])
        _limit(resource.RLIMIT_CPU, arguments["cpu_s"])
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_FSIZE, 0)
        try:
            for message in read_pages(file, arguments["max_pages"], arguments["max_chars"]):
                output.write(json.dumps(message) + "\n")
        except MemoryError:
            output.write(json.dumps({"error": "needs more memory than pdf_memory_bytes allows"}) + "\n")
        except Exception as error:
            output.write(json.dumps({"error": f"not a readable PDF ({type(error).__name__})"}) + "\n")


def read_pages(file: BinaryIO, max_pages: int, max_chars: int) -> Iterator[dict[str, Any]]:
    """Messages in order: `title`, then per page `page` and `text` or a `fault`; last `done` or an `error`."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    reader = PdfReader(file, strict=False)
    if reader.is_encrypted:
        try:
            # Files that are only protected against changes open with the empty password.
            opened = reader.decrypt("")
        except (DependencyError, NotImplementedError):
            opened = None
        if not opened:
            yield {"error": "encrypted"}
            return
    n_pages = len(reader.pages)
    if n_pages > max_pages:
        yield {"error": f"{n_pages:,} pages, more than max_pages={max_pages:,}"}
        return
    title = _title(reader)
    if title:
        yield {"title": title}
    total = 0
    for number in range(1, n_pages + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except MemoryError:
            raise
        except Exception as error:
            yield {"fault": f"page {number}: could not be read ({type(error).__name__})"}
            continue
        total += len(text)
        if total > max_chars:
            yield {"error": f"gives more text than max_decompressed_bytes={max_chars:,}"}
            return
        if text.strip():
            yield {"page": number, "text": text}
    yield {"done": True}


def _title(reader: Any) -> str:
    try:
        title = reader.metadata.title if reader.metadata else None
    except Exception:
        # A damaged information dictionary says nothing about the pages.
        return ""
    return title if isinstance(title, str) else ""


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(which, (value, hard))
    except (ValueError, OSError):
        # Some systems refuse some limits; the parent's clock still holds.
        return
