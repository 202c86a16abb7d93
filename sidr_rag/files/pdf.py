"""PDF: one section per page, read in another process that can be stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sidr_rag.errors import FileReadError, MissingExtraError
from sidr_rag.files.document import MAX_TITLE_CHARS, Fault, Section
from sidr_rag.files.limits import Limits
from sidr_rag.files.opening import open_regular

# The worker's own search path is the parent's, handed over as data; -I keeps the environment from adding to it.
_START = (
    "import sys, json; a = json.loads(sys.argv[1]); sys.path[:] = a['path'];"
    "from sidr_rag.files.pdf_worker import main; main(a)"
)


def load(path: Path, limits: Limits, fault: Fault) -> Iterator[Section]:
    """One section per page with text, `page` (from 1) in its metadata.

    A page that cannot be read is reported and the rest is kept.

    Raises:
        FileReadError: the file is encrypted, damaged, has too many pages, or took too much time or memory.
        MissingExtraError: pypdf is not installed.
        OSError: the file cannot be opened.
    """
    if find_spec("pypdf") is None:
        raise MissingExtraError("pypdf", "files", "reading PDF files")
    title: str | None = None
    for message in _messages(path, limits):
        if "error" in message:
            raise FileReadError(message["error"])
        if "fault" in message:
            fault(message["fault"])
        elif "title" in message:
            title = " ".join(message["title"].split())[:MAX_TITLE_CHARS] or None
        else:
            metadata: dict[str, Any] = {"page": message["page"]}
            yield Section(message["text"], title, {**metadata, "title": title} if title else metadata)


def command(limits: Limits) -> list[str]:
    """The command line of the worker, which reads the PDF from its standard input."""
    arguments = {
        "path": [entry for entry in sys.path if isinstance(entry, str)],
        "max_pages": limits.max_pages,
        "max_chars": limits.max_decompressed_bytes,
        "memory_bytes": limits.pdf_memory_bytes,
        "cpu_s": int(limits.pdf_timeout_s) + 1,
    }
    return [sys.executable, "-I", "-c", _START, json.dumps(arguments)]


def _messages(path: Path, limits: Limits) -> list[dict[str, Any]]:
    """Everything the worker says; the amount is bounded by the limits it was given."""
    with (
        open_regular(path, limits) as file,
        subprocess.Popen(
            command(limits), stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, close_fds=True
        ) as worker,
    ):
        try:
            output, _ = worker.communicate(timeout=limits.pdf_timeout_s)
        except subprocess.TimeoutExpired:
            raise FileReadError(f"took longer than pdf_timeout_s={limits.pdf_timeout_s:g}") from None
        finally:
            worker.kill()
    messages = [json.loads(line) for line in output.splitlines() if line.endswith(b"}")]
    if not messages or not {"done", "error"} & messages[-1].keys():
        messages.append({"error": f"the PDF reader stopped early (exit status {worker.returncode})"})
    return [message for message in messages if "done" not in message]
