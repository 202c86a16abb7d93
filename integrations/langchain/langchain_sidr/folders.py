"""Files and folders as the columns of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_sidr.documents import passage_columns

if TYPE_CHECKING:
    from sidr_rag.files import FileReport

_SPLITTING = ("model", "device", "normalization")


def folder_columns(
    folder: str | Path | Iterable[str | Path], engine_options: Mapping[str, Any], **reading: Any
) -> tuple[dict[str, Any], FileReport]:
    """What `read_passages` gives, as columns that are read in step, and the report that fills up meanwhile.

    Args:
        folder: one or more folders or files.
        engine_options: those of `SiDR.from_texts`, because the splitter has to count the tokens of the same model.
        reading: `max_tokens`, `overlap`, `limits` and `on_file` of `read_passages`.

    Raises:
        FileReadError: if a path does not exist.
    """
    from sidr_rag.encoder import load_encoder
    from sidr_rag.files import FileReport, read_passages

    report = FileReport()
    # Passages are split before there is an engine; no weights are read for this.
    tokenizer = load_encoder(**{name: engine_options[name] for name in _SPLITTING if name in engine_options}).tokenizer
    return passage_columns(read_passages(folder, tokenizer=tokenizer, report=report, **reading)), report
