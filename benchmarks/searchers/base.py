"""What a way to search offers to the benchmarks."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.corpora import SETS, Corpus

WORDS = "default"


class PeerAbsentError(Exception):
    """A peer is not installed here; the message names it."""


def peer(module: str, package: str) -> Any:
    """A peer's module, untyped.

    Raises:
        PeerAbsentError: if it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise PeerAbsentError(f"not installed: {package} (requirements-bench.txt)") from e


class Searcher(ABC):
    """One index over a corpus, and one set of queries at a time.

    Attributes:
        label: the row's name.
        packages: distributions that take part.
        index: name of the folder of the built index; searchers may share one.
        sets: query sets that it can answer.
        most_passages: where more would only cost time or memory.
        in_memory: whether `open` makes the index, and nothing is kept in the folder.
        reads_texts: whether its index is made of texts; otherwise of bags that are there already.
        exact: whether it promises the exact best.
        has_recall: whether its scores are those of the query vectors.
    """

    label: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    index: ClassVar[str]
    sets: ClassVar[tuple[str, ...]] = SETS
    most_passages: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = False
    reads_texts: ClassVar[bool] = False
    exact: ClassVar[bool] = True
    has_recall: ClassVar[bool] = True

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        """Nothing is built or opened yet; the folder is the index's own."""
        self.corpus = corpus
        self.folder = folder

    def load(self) -> None:  # noqa: B027 - most have nothing to load
        """What is loaded before the clock starts: modules and models."""

    def build(self) -> None:  # noqa: B027 - in memory there is nothing to keep
        """Make the index in the folder, where the method keeps one."""

    @abstractmethod
    def open(self) -> None:
        """Open the index in the folder, or make the one in memory."""

    @abstractmethod
    def index_bytes(self) -> int:
        """Bytes of the opened index: of its arrays, or of its files."""

    @abstractmethod
    def take(self, name: str) -> None:
        """Make the queries of a set ready, as this method wants them."""

    @abstractmethod
    def search(self, i: int) -> Any:
        """Answer query i; all that is measured."""

    @abstractmethod
    def rows(self, found: Any) -> Sequence[int]:
        """Positions of the passages that `search` found."""

    def settings(self) -> str:
        """What was chosen for this corpus, for people to read."""
        return ""


class BatchSearcher(Searcher):
    """A searcher that has a way of its own to answer many queries at once."""

    @abstractmethod
    def search_all(self) -> Any:
        """Answer all queries of the set at once."""


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
