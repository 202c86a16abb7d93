"""Every passage of the training data once, with its bags; and the queries that point at them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.index.segment import Segment
from sidr_rag.text.tokenizer import BagTokenizer
from sidr_rag.train.data import Pair, Text, read_passages, read_source, source_name
from sidr_rag.train.sections import Data, Source
from sidr_rag.types import TokenCounts


@dataclass(frozen=True)
class Example:
    """A training query.

    Attributes:
        query: its text.
        positives: pids of the passages that answer it, at least one.
        negatives: pids that the source calls wrong.
        answers: see `Pair`.
        source: the number of its source.
    """

    query: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    answers: tuple[str, ...]
    source: int


@dataclass(frozen=True)
class Collection:
    """A set of passages as a search sees it: the statistics and the index are of these passages alone.

    Attributes:
        name: for logs.
        pids: i64[n], ascending; row r of the index is passage `pids[r]`, whose seq is `pids[r] + 1`.
        index: their bag-of-tokens index.
    """

    name: str
    pids: NDArray[np.int64]
    index: BotIndex

    @property
    def segment(self) -> Segment:
        """The one segment of the index."""
        return self.index.views[0].segment

    @property
    def average_length(self) -> float:
        """Tokens of a passage, on average."""
        return self.index.total_length / max(1, self.index.n_live)

    def rows(self, pids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of passages that are known to be here."""
        return np.searchsorted(self.pids, pids)

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """f64[n]: tokens of each passage."""
        return self.segment.lengths.astype(np.float64)


class Pool:
    """Passages, examples and the collections they are searched in.

    Attributes:
        contents: text of each passage, title included where it was not dropped; a passage's place is its pid.
        examples: every training query.
        by_source: for each source, i64 numbers of its examples.
        names: of the sources.
        collections: for each source, its passages; the last one holds all passages.
    """

    def __init__(self, data: Data, tokenizer: BagTokenizer, levels: Sequence[int], seed: int) -> None:
        """Read the sources, drop titles, tokenize every passage once and index it.

        Raises:
            FileReadError: if a source cannot be read.
            InvalidInputError: if a source holds no pair.
        """
        self.contents: list[str] = []
        self.examples: list[Example] = []
        self.names: list[str] = []
        self.by_source: list[NDArray[np.int64]] = []
        self._pids: dict[str, int] = {}
        members = [self._read(number, source, data.title_dropout, seed) for number, source in enumerate(data.sources)]
        counts = tokenizer.counts(self.contents)
        everything = np.arange(len(self.contents), dtype=np.int64)
        self.collections = [
            _collection(name, counts, pids, levels)
            for name, pids in zip([*self.names, "all"], [*members, everything], strict=True)
        ]

    def _read(self, number: int, source: Source, title_dropout: float, seed: int) -> NDArray[np.int64]:
        name = source_name(source.path)
        pairs: Iterable[Pair] = read_source(source)
        if source.limit is not None:
            every = list(pairs)
            kept = np.random.default_rng([seed, number]).permutation(len(every))[: source.limit]
            pairs = [every[i] for i in np.sort(kept)]
        members: set[int] = set()

        def pid_of(text: Text) -> int:
            pid = self._pid(text, title_dropout, seed)
            members.add(pid)
            return pid

        first = len(self.examples)
        for pair in pairs:
            positives = tuple(dict.fromkeys(pid_of(text) for text in pair.positives))
            negatives = tuple(pid for pid in dict.fromkeys(map(pid_of, pair.negatives)) if pid not in positives)
            self.examples.append(Example(pair.query, positives, negatives, pair.answers, number))
        if len(self.examples) == first:
            raise InvalidInputError(f"data.sources[{number}] ({name}) holds no pair; take it out or mend its path")
        for path in source.passages:
            for text in read_passages(path):
                pid_of(text)
        self.names.append(name)
        self.by_source.append(np.arange(first, len(self.examples), dtype=np.int64))
        return np.array(sorted(members), dtype=np.int64)

    def _pid(self, text: Text, title_dropout: float, seed: int) -> int:
        key = f"{text.title or ''}\0{text.text}"
        pid = self._pids.get(key)
        if pid is None:
            pid = self._pids[key] = len(self.contents)
            titled = text.title and _uniform(key, seed) >= title_dropout
            self.contents.append(f"{text.title} {text.text}" if titled else text.text)
        return pid

    @cached_property
    def known_positives(self) -> dict[str, frozenset[int]]:
        """For each query text, the passages that answer it in any source."""
        found: dict[str, set[int]] = {}
        for example in self.examples:
            found.setdefault(example.query, set()).update(example.positives)
        return {query: frozenset(pids) for query, pids in found.items()}

    @cached_property
    def fingerprint(self) -> str:
        """Of all queries and passages in order: what cached teacher scores belong to."""
        digest = hashlib.sha256()
        for part in (self.contents, [example.query for example in self.examples]):
            for text in part:
                digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        return digest.hexdigest()[:16]


def _uniform(key: str, seed: int) -> float:
    """A number in [0, 1) that depends on the passage and the seed alone, whatever else is read."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, key=str(seed).encode()[:64])
    return int.from_bytes(digest.digest(), "big") / 2.0**64


def _collection(name: str, counts: TokenCounts, pids: NDArray[np.int64], levels: Sequence[int]) -> Collection:
    own = take_rows(counts, pids)
    segment = build_segment(own, (pids + 1).astype(np.uint64), levels)
    return Collection(name, pids, BotIndex.of(counts.dim, [SegmentView(name, segment)]))


def take_rows(counts: TokenCounts, rows: NDArray[np.int64]) -> TokenCounts:
    """The counts of some texts, in the given order."""
    indptr, at = gather(counts.indptr, rows)
    return TokenCounts(indptr, counts.dims[at], counts.counts[at], counts.lengths[rows], counts.dim)


def gather(indptr: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lists of some rows: their new indptr i64[len(rows) + 1], and i64 positions of their entries."""
    lens = indptr[rows + 1] - indptr[rows]
    new = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lens, out=new[1:])
    return new, np.repeat(indptr[rows] - new[:-1], lens) + np.arange(int(new[-1]))
