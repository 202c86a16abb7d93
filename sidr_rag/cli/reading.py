"""Files to passages with a progress bar, and which older passages a newly read file replaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from sidr_rag.engine import SiDR
from sidr_rag.errors import FileReadError
from sidr_rag.files import FileReport, read_passages
from sidr_rag.text.tokenizer import BagTokenizer
from sidr_rag.types import Passage

_BLOCK = 1000


class Reading:
    """One pass over files and folders.

    Args:
        paths: what to read.
        tokenizer: counts tokens for the splitter.
        max_tokens: the most tokens in a passage.
        overlap: tokens that neighbouring passages share.

    Attributes:
        report: which files were loaded, skipped or failed; complete once `passages` is exhausted.
    """

    def __init__(self, paths: Sequence[Path], tokenizer: BagTokenizer, *, max_tokens: int, overlap: int) -> None:
        self.report = FileReport()
        self._n_paths = len(paths)
        self._n_files = 0
        self._tried: list[str] = []
        self._passages = read_passages(
            paths,
            tokenizer=tokenizer,
            max_tokens=max_tokens,
            overlap=overlap,
            report=self.report,
            on_file=lambda source, _: self._tried.append(source),
        )

    def passages(self, *, required: bool = False) -> Iterator[Passage]:
        """The passages, once, with a progress bar on stderr if that is a terminal.

        Args:
            required: whether it is an error if there are none.

        Raises:
            FileReadError: if there are none and they are required; whatever was to be done with them is then not done.
        """
        console = Console(stderr=True)
        n = 0
        with Progress(
            TextColumn("reading"),
            BarColumn(),
            TextColumn("{task.fields[files]:,} files, {task.completed:,.0f} passages"),
            _Rate(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        ) as progress:
            task = progress.add_task("reading", total=None, files=0)
            for passage in self._passages:
                n += 1
                progress.update(task, advance=1, files=len(self._tried))
                yield passage
        if required and not n:
            raise FileReadError(
                f"no passages in the {self._n_paths:,} paths given: {len(self.report.skipped):,} files skipped, "
                f"{len(self.report.failed):,} failed{_first_reason(self.report)}; nothing was stored"
            )

    def sources(self) -> set[str]:
        """Files whose older passages are out of date now: they gave passages, or hold no text and no fault."""
        failed = {source for source, _ in self.report.failed}
        return {source for source, _ in self.report.loaded} | (set(self._tried) - failed)


def columns_of(passages: Iterator[Passage]) -> dict[str, Any]:
    """The arguments of `SiDR.from_texts` for a stream of passages, read in step so that nothing piles up."""
    texts, ids, titles, metadatas = tee(passages, 4)
    return {
        "texts": (p.text for p in texts),
        "ids": (p.id for p in ids),
        "titles": (p.title for p in titles),
        "metadatas": (p.metadata for p in metadatas),
    }


def replaced_ids(sidr: SiDR, sources: set[str], added: Sequence[str]) -> list[str]:
    """Ids of passages that came from these sources before and were not added now."""
    kept = set(added)
    older = [i for i in sidr.ids() if i not in kept]
    return [
        passage.id
        for start in range(0, len(older), _BLOCK)
        for passage in sidr.get(older[start : start + _BLOCK])
        if passage.metadata.get("source") in sources
    ]


class _Rate(ProgressColumn):
    """Passages per second since the start; rich's own speed looks only at the last moments and jumps."""

    def render(self, task: Task) -> Text:
        """The rate, or nothing before there is one."""
        return Text(f"{task.completed / task.elapsed:,.0f} passages/s" if task.elapsed else "")


def _first_reason(report: FileReport) -> str:
    reasons = report.failed or report.skipped
    return f" (the first: {reasons[0][0]}: {reasons[0][1]})" if reasons else ""
