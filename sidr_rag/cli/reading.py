"""Files to passages with a progress bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from sidr_rag.errors import FileReadError
from sidr_rag.files import FileReport, read_passages
from sidr_rag.text.tokenizer import BagTokenizer
from sidr_rag.types import Passage


class Reading:
    """One pass over files and folders.

    Args:
        paths: what to read.
        max_tokens: the most tokens in a passage.
        overlap: tokens that neighbouring passages share.

    Attributes:
        report: which files were loaded, skipped or failed; complete once `passages` is exhausted.
    """

    def __init__(self, paths: Sequence[Path], *, max_tokens: int, overlap: int) -> None:
        self.report = FileReport()
        self._paths = paths
        self._max_tokens = max_tokens
        self._overlap = overlap
        self._n_tried = 0

    def passages(self, tokenizer: BagTokenizer, *, required: bool = False) -> Iterator[Passage]:
        """The passages, once, with a progress bar on stderr if that is a terminal.

        Args:
            tokenizer: counts tokens for the splitter.
            required: whether it is an error if there are none.

        Raises:
            FileReadError: if a path does not exist; if there are no passages and they are required: whatever was to be
                done with them is then not done.
        """
        found = read_passages(
            self._paths,
            tokenizer=tokenizer,
            max_tokens=self._max_tokens,
            overlap=self._overlap,
            report=self.report,
            on_file=self.note,
        )
        return self.shown(found, required=required)

    def note(self, source: str, n_passages: int) -> None:
        """Count a file that was tried."""
        self._n_tried += 1

    def shown(self, found: Iterator[Passage], *, required: bool = False) -> Iterator[Passage]:
        """The same passages, with the progress bar."""
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
            for passage in found:
                n += 1
                progress.update(task, advance=1, files=self._n_tried)
                yield passage
        if required and not n:
            raise FileReadError(
                f"no passages in the {len(self._paths):,} paths given: {len(self.report.skipped):,} files skipped, "
                f"{len(self.report.failed):,} failed{_first_reason(self.report)}; nothing was stored"
            )


class _Rate(ProgressColumn):
    """Passages per second since the start; rich's own speed looks only at the last moments and jumps."""

    def render(self, task: Task) -> Text:
        """The rate, or nothing before there is one."""
        return Text(f"{task.completed / task.elapsed:,.0f} passages/s" if task.elapsed else "")


def _first_reason(report: FileReport) -> str:
    reasons = report.failed or report.skipped
    return f" (the first: {reasons[0][0]}: {reasons[0][1]})" if reasons else ""
