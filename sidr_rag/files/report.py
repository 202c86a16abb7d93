"""What became of each file."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class FileReport:
    """Filled while passages are read; complete once the iterator is exhausted.

    A file that gave passages and also had faulty parts (a bad line, a bad page) is in `loaded` and in `failed`.

    Attributes:
        loaded: (path, number of passages) of every file that gave passages, in reading order.
        skipped: (path, reason) of files and folders that were deliberately not read, or hold no text.
        failed: (path, reason) of files, or parts of files, that could not be read.
    """

    loaded: list[tuple[str, int]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def n_passages(self) -> int:
        """Passages read from all files."""
        return sum(n for _, n in self.loaded)


class FaultList:
    """The faults of one file: the first hundred in words, the rest as a number, so that memory stays bounded."""

    MAX_KEPT = 100

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._more = 0

    def __call__(self, reason: str) -> None:
        """Note one fault."""
        if len(self._kept) < self.MAX_KEPT:
            self._kept.append(reason)
        else:
            self._more += 1

    def reasons(self) -> list[str]:
        """All faults noted."""
        return [*self._kept, f"and {self._more:,} more faults of this kind"] if self._more else list(self._kept)
